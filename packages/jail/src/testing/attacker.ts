import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { builtPath, type Launch, launchWords } from "@capsem/native";
import { afterAll } from "vitest";
import { assemble } from "../bpf.ts";
import { compileAllowed } from "../compile.ts";
import { nodeReadPaths } from "../launch-plans.ts";
import type { Profile } from "../profile.ts";
import { isArch, type Syscall } from "../syscall-table.ts";

export interface Attacker {
  /** Any user may enter and run the program; the caller puts its sockets and files here. */
  readonly folder: string;
  /** Puts the profile on itself, then acts. Resolves to how each act ended: "done" or an errno's name. */
  under(profile: Profile, acts: readonly string[], env?: Env): Promise<Record<string, string>>;
  /** Under the launcher, as a hypervisor is. */
  launched(change: Partial<Launch>, acts: readonly string[], env?: Env): Promise<Record<string, string>>;
}
type Env = Readonly<Record<string, string>>;

/** Compiles attacker.c: call once, at the top of a test file. */
export function buildAttacker(): Attacker {
  const folder = mkdtempSync(join(tmpdir(), "jail-attack-"));
  afterAll(() => rmSync(folder, { recursive: true, force: true }));
  chmodSync(folder, 0o755);
  const program = join(folder, "attacker");
  const source = join(import.meta.dirname, "attacker.c");
  const built = spawnSync("gcc", ["-std=gnu17", "-Wall", "-Werror", source, "-o", program], {
    encoding: "utf8",
  });
  if (built.status !== 0) throw new Error(`Cannot build the attacker: ${built.stderr}`);
  chmodSync(program, 0o755);
  const { arch } = process;
  if (!isArch(arch)) throw new Error(`Cannot attack: there is no profile for ${arch}`);
  return {
    folder,
    under(profile, acts, env = {}) {
      const filter = join(folder, "filter");
      // Its own pid is of no matter to what it does under a profile.
      writeFileSync(filter, assemble(compileAllowed(profile, arch, { selfPid: 0 })));
      return run(program, [filter, ...acts], env);
    },
    launched(change, acts, env = {}) {
      const { read, exec } = nodeReadPaths(process.execPath, []);
      const launch = {
        parentPid: process.pid,
        command: program,
        args: ["-", ...acts],
        grants: { read, exec: [...exec, program] },
        env,
        ...(process.getuid?.() === 0 ? { asRoot: true } : {}),
        ...change,
      };
      const words = launchWords(launch, builtPath("capsem-launch"));
      return run(words.file, words.args, env);
    },
  };
}

/** The profile as if it had these calls without a condition: what it would be without a gate. */
export function loosened(profile: Profile, calls: readonly Syscall[]): Profile {
  return {
    ...profile,
    groups: [...profile.groups, { why: "the attack", calls }],
    rules: profile.rules.filter(({ call }) => !calls.includes(call)),
  };
}

/** Not synchronously: the sockets that it dials are this process's. */
async function run(file: string, args: readonly string[], env: Env): Promise<Record<string, string>> {
  const child = spawn(file, args, { stdio: ["ignore", "pipe", "inherit"], env: { ...env }, timeout: 20_000 });
  let said = "";
  child.stdout.on("data", (data) => {
    said += data;
  });
  const [code, signal] = await once(child, "close");
  if (code !== 0) throw new Error(`Cannot attack: it ended with ${code ?? signal} after "${said}"`);
  return Object.fromEntries(
    said
      .trim()
      .split("\n")
      .map((line) => line.split(": ") as [string, string]),
  );
}
