import { realpathSync } from "node:fs";
import { homedir } from "node:os";
import { dirname, join, resolve } from "node:path";
import type { InputPower, OutputPower, Powers, Signal } from "./powers.ts";

type OutputStream = NodeJS.WriteStream & { readonly fd: 1 | 2 };

export function nodePowers(): Powers {
  const { env } = process;
  const home =
    env.CAPSEM_HOME === undefined || env.CAPSEM_HOME === ""
      ? join(homedir(), ".capsem")
      : resolve(env.CAPSEM_HOME);
  return {
    env,
    home,
    programFolder: dirname(realpathSync(process.argv[1] ?? ".")),
    stdin: inputPower(),
    stdout: outputPower(() => process.stdout),
    stderr: outputPower(() => process.stderr),
    now: () => Date.now(),
    onSignals,
    exit: (code) => process.exit(code),
  };
}

function onSignals(names: readonly Signal[], listener: (name: Signal) => void): () => void {
  const listeners = names.map((name) => {
    const each = () => listener(name);
    process.on(name, each);
    return { name, each };
  });
  return () => {
    for (const { name, each } of listeners) process.off(name, each);
  };
}

function inputPower(): InputPower {
  return {
    get isTerminal() {
      return process.stdin.isTTY === true;
    },
    bytes: () => process.stdin as AsyncIterable<Uint8Array>,
    setRaw: (raw) => {
      if (process.stdin.isTTY !== true) return;
      process.stdin.setRawMode(raw);
      if (!raw) process.stdin.pause();
    },
  };
}

function outputPower(stream: () => OutputStream): OutputPower {
  let failed: Error | null = null;
  let listens = false;
  const open = (): OutputStream => {
    const opened = stream();
    // Errors also arrive as events, which would end the program if nobody listened.
    if (!listens) opened.on("error", (error) => (failed = error));
    listens = true;
    return opened;
  };
  return {
    get isTerminal() {
      return stream().isTTY === true;
    },
    size: () => {
      const { isTTY, columns, rows } = stream();
      return isTTY === true && columns > 0 && rows > 0 ? { cols: columns, rows } : null;
    },
    write: (data) =>
      new Promise((done, reject) => {
        const opened = open();
        if (failed !== null) reject(failed);
        else opened.write(data, (error) => (error ? reject(error) : done()));
      }),
  };
}
