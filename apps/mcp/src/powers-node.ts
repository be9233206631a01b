import { closeSync, openSync, readSync } from "node:fs";
import type { Powers } from "./powers.ts";

export function nodePowers(): Powers {
  return {
    argv: process.argv.slice(2),
    env: process.env,
    stdin: process.stdin,
    takeStdout,
    print: (text) => void process.stdout.write(text),
    say: (line) => void process.stderr.write(`capsem-mcp: ${line}\n`),
    readFile,
    onEndSignal: (listener) => {
      process.on("SIGINT", listener);
      process.on("SIGTERM", listener);
    },
    every,
    random: (bytes) => globalThis.crypto.getRandomValues(new Uint8Array(bytes)),
    exit: (code) => process.exit(code),
  };
}

export function every(intervalMs: number, tick: () => void): () => void {
  const timer = setInterval(tick, intervalMs);
  return () => clearInterval(timer);
}

/** `console.log` of any library goes through the stream's `write`, which is stderr's from here on. */
function takeStdout(): (text: string) => Promise<void> {
  const write = process.stdout.write.bind(process.stdout);
  process.stdout.write = process.stderr.write.bind(process.stderr) as typeof process.stdout.write;
  // Errors also arrive as events, which would end the process as uncaught; the write's callback has them.
  process.stdout.on("error", () => undefined);
  process.stderr.on("error", () => undefined);
  return (text) =>
    new Promise((done, fail) => {
      write(text, (error) => (error ? fail(error) : done()));
    });
}

function readFile(path: string, bytesMax: number): string {
  const file = openSync(path, "r");
  try {
    const buffer = Buffer.alloc(bytesMax);
    return buffer.subarray(0, readSync(file, buffer, 0, bytesMax, 0)).toString("latin1");
  } finally {
    closeSync(file);
  }
}
