import { type ChildProcess, spawn } from "node:child_process";
import { readFileSync, realpathSync } from "node:fs";
import { join } from "node:path";
import { assert, Failure } from "@capsem/base";
import { NODE_ENVIRONMENT, nodeReadPaths } from "@capsem/jail";
import { builtPath, launchWords } from "@capsem/native";
import { logFolder, runFolder } from "./home-folders.ts";
import { PROCESS_LIMITS } from "./limits.ts";

export interface StartOptions {
  readonly home: string;
  readonly port: number;
  readonly isUnconfined: boolean;
  /** This bundle. */
  readonly program: string;
}

export interface Started {
  readonly port: number;
  /** Of the process to signal: the gatekeeper, or the gateway itself when it is unconfined. */
  readonly pid: number;
  readonly confined: boolean;
}

/** Starts the daemon and lets it go on alone. Rejects with a Failure when it ends before it is ready. */
export async function startProcess(options: StartOptions): Promise<Started> {
  const { file, args } = options.isUnconfined ? plainWords(options) : gatekeeperWords(options);
  const child = spawn(file, args, {
    detached: true,
    cwd: "/",
    stdio: ["ignore", "pipe", "pipe"],
    env: { PATH: process.env.PATH ?? "/usr/sbin:/usr/bin:/sbin:/bin", LANG: "C.UTF-8" },
  });
  const port = await readyPort(child, options);
  child.unref();
  return { port, pid: child.pid ?? -1, confined: !options.isUnconfined };
}

function plainWords({ home, port, program }: StartOptions): { file: string; args: string[] } {
  const args = [program, "serve", "--home", home, "--port", String(port), "--allow-unconfined"];
  return { file: process.execPath, args };
}

/** The gatekeeper's options, then the launcher's, then the gateway: no path of the home is granted to it. */
export function gatekeeperWords({ home, port, program }: StartOptions): { file: string; args: string[] } {
  const nodeBinary = realpathSync(process.execPath);
  const launcher = builtPath("capsem-launch");
  const { args } = launchWords({
    parentPid: process.pid,
    command: nodeBinary,
    args: [program, "serve"],
    grants: nodeReadPaths(nodeBinary, [program, builtPath("native.node")]),
    openFilesMax: PROCESS_LIMITS.openFilesMax,
    landlock: "require",
    // The listener was made outside and stays where it is.
    netNamespace: "try",
    env: NODE_ENVIRONMENT,
    ...(process.getuid?.() === 0 ? { asRoot: true } : {}),
  });
  // The gatekeeper is the parent, and says so itself.
  const [first, , ...rest] = args;
  assert(first === "--parent", "the launcher's first option names the parent");
  const own = [
    ...["--listen", `127.0.0.1:${port}`, "--run-dir", runFolder(home)],
    ...["--log", join(logFolder(home), "gateway.jsonl"), "--launcher", launcher],
  ];
  return { file: builtPath("capsem-gatekeeper"), args: [...own, ...rest] };
}

/** Both say one line with the port once connections are welcome: `ready PORT`, or a JSON object. */
function readyPort(child: ChildProcess, options: StartOptions): Promise<number> {
  return new Promise((resolve, reject) => {
    let said = "";
    let errors = "";
    const timer = setTimeout(() => {
      child.kill("SIGTERM");
      reject(new Failure("not_ready", "Cannot start the gateway: it is not ready in time"));
    }, PROCESS_LIMITS.startTimeoutMs);
    const settle = () => {
      clearTimeout(timer);
      child.stdout?.destroy();
      child.stderr?.destroy();
    };
    child.stdout?.on("data", (part) => {
      said += String(part);
      const port = /^(?:ready |\{"ready":true,"port":)([0-9]+).*\n/.exec(said)?.[1];
      if (port === undefined) return;
      settle();
      resolve(Number(port));
    });
    child.stderr?.on("data", (part) => {
      errors += String(part);
    });
    child.once("error", (error) => {
      settle();
      reject(
        new Failure("not_started", "Cannot start the gateway: its program is missing", { cause: error }),
      );
    });
    child.once("close", (code) => {
      settle();
      reject(endFailure(code, errors, options));
    });
  });
}

/** By the gatekeeper's codes (native/launcher/capsem-gatekeeper.c) or the gateway's own. */
function endFailure(
  code: number | null,
  errors: string,
  { home, port, isUnconfined }: StartOptions,
): Failure {
  if (code === 82)
    return new Failure("already_running", "Cannot start the gateway: another one runs for this home");
  if (code === 83 || (isUnconfined && code === 3)) {
    return new Failure("port_taken", `Cannot start the gateway: port ${port} is taken`);
  }
  const words = errors.trim().split("\n").at(-1) ?? "";
  const why = words === "" ? lastCause(join(logFolder(home), "gateway.jsonl")) : words;
  return new Failure(
    "not_started",
    `Cannot start the gateway: ${why === "" ? `it ended with code ${code}` : why}`,
  );
}

/** What the gateway itself said last, where its words went into the log. */
function lastCause(path: string): string {
  try {
    const line = readFileSync(path, "utf8").trim().split("\n").at(-1) ?? "";
    const { message, cause } = JSON.parse(line) as { message?: unknown; cause?: unknown };
    return message === "not started" && typeof cause === "string" ? cause : "";
  } catch {
    return "";
  }
}
