/**
 * `node wire-tap.ts LOG COMMAND ARGS…`: stands between a client and a stdio server. It passes every byte and every
 * signal on unchanged and writes what went over the wire to LOG, a JSON line an event. It imports nothing of ours,
 * because Node runs it as it is.
 */
import { spawn } from "node:child_process";
import { appendFileSync } from "node:fs";

const [log = "", command = "", ...args] = process.argv.slice(2);
const record = (event: object) => appendFileSync(log, `${JSON.stringify(event)}\n`);
const server = spawn(command, args, { stdio: ["pipe", "pipe", "inherit"] });

/** Whole lines, as text; what never got its line end is told apart at the end. */
function lines(from: "client" | "server"): { add(chunk: Buffer): void; end(): void } {
  let rest = Buffer.alloc(0);
  return {
    add(chunk) {
      rest = Buffer.concat([rest, chunk]);
      for (let at = rest.indexOf(10); at >= 0; at = rest.indexOf(10)) {
        record({ from, line: rest.subarray(0, at).toString("utf8") });
        rest = rest.subarray(at + 1);
      }
    },
    end() {
      if (rest.length > 0) record({ from, unfinished: rest.toString("utf8") });
    },
  };
}

const fromClient = lines("client");
const fromServer = lines("server");
process.stdin.on("data", (chunk: Buffer) => {
  fromClient.add(chunk);
  server.stdin.write(chunk);
});
process.stdin.on("end", () => {
  record({ asked: "end of input" });
  server.stdin.end();
});
server.stdin.on("error", () => undefined);
server.stdout.on("data", (chunk: Buffer) => {
  fromServer.add(chunk);
  process.stdout.write(chunk);
});
// A client that has gone reads no more; the record goes on.
process.stdout.on("error", () => undefined);
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) {
  process.on(signal, () => {
    record({ asked: signal });
    server.kill(signal);
  });
}
server.on("close", (code, signal) => {
  fromClient.end();
  fromServer.end();
  record({ end: { code, signal } });
  process.exit(code ?? 1);
});
