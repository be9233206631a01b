import type { SpawnOptions, spawn } from "node:child_process";
import { type Accelerator, acceleratorArguments } from "./command-line.ts";
import { MACHINE, MACHINE_OPTIONS, SANDBOX } from "./device-layout.ts";
import { KERNEL_CMDLINE } from "./image/kernel-cmdline.ts";
import { PROBE_OUTPUT_BYTES_MAX } from "./limits.ts";
import { PROBE_TOKEN } from "./probe-init.ts";

const PROBE_MEMORY_MIB = 128;

export interface BootOptions {
  qemuBinary: string;
  accelerator: Accelerator;
  kernelPath: string;
  initrdPath: string;
  timeoutMs: number;
  spawn: typeof spawn;
}

export type BootResult = { kind: "booted" } | { kind: "failed"; reason: string };

/** Boots the probe's guest and looks for its token. The hypervisor is gone when this resolves. */
export function bootProbe(options: BootOptions): Promise<BootResult> {
  const spawnOptions: SpawnOptions = { stdio: ["ignore", "pipe", "pipe"], env: {}, cwd: "/" };
  const child = options.spawn(options.qemuBinary, probeArguments(options), spawnOptions);
  return new Promise((resolve) => {
    let result: BootResult | undefined;
    const decide = (decided: BootResult) => {
      result ??= decided;
      child.kill("SIGKILL");
    };
    const timer = setTimeout(
      () => decide(failed(`no guest program ran within ${options.timeoutMs} ms`)),
      options.timeoutMs,
    );
    let output = "";
    child.stdout?.on("data", (chunk: Buffer) => {
      output = (output + chunk.toString("latin1")).slice(-PROBE_OUTPUT_BYTES_MAX);
      if (output.includes(PROBE_TOKEN)) decide({ kind: "booted" });
    });
    let errors = "";
    child.stderr?.on("data", (chunk: Buffer) => {
      errors = (errors + chunk.toString("utf8")).slice(-PROBE_OUTPUT_BYTES_MAX);
    });
    const finish = (decided: BootResult) => {
      clearTimeout(timer);
      resolve(withErrors(result ?? decided, errors));
    };
    child.once("error", (thrown) => finish(failed(`the hypervisor cannot be run: ${thrown.message}`)));
    child.once("close", (code, signal) => {
      finish(failed(`the hypervisor ended with ${signal ?? code} before a guest program ran`));
    });
  });
}

function probeArguments({ accelerator, kernelPath, initrdPath }: BootOptions): string[] {
  return [
    ...["-machine", [MACHINE, ...MACHINE_OPTIONS].join(",")],
    ...acceleratorArguments(accelerator),
    ...["-m", `${PROBE_MEMORY_MIB}M`, "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"],
    ...["-sandbox", SANDBOX, "-kernel", kernelPath, "-initrd", initrdPath, "-append", KERNEL_CMDLINE],
    ...["-chardev", "stdio,id=console,mux=off,signal=off", "-serial", "chardev:console"],
  ];
}

function failed(reason: string): BootResult {
  return { kind: "failed", reason };
}

/** The hypervisor's first complaint is the cause; later ones follow from it. */
function withErrors(result: BootResult, errors: string): BootResult {
  const first = errors.split("\n").find((line) => line.trim() !== "");
  if (result.kind === "booted" || first === undefined) return result;
  return failed(`${result.reason} ("${first.trim().slice(0, 200)}")`);
}
