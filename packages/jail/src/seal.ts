import { networkInterfaces } from "node:os";
import { ignore, messageOf } from "@capsem/base";
import type { Native } from "@capsem/native";
import { assemble } from "./bpf.ts";
import { compileAllowed, compileFatal, type Subjects } from "./compile.ts";
import { jailFailure } from "./error.ts";
import { isDenied, PROBE_OF, type ProbeGround } from "./probes.ts";
import type { ProbeName, Profile } from "./profile.ts";
import { isArch } from "./syscall-table.ts";

export interface SealOptions {
  readonly native: Pick<
    Native,
    "attempt" | "landlockAbi" | "setNoNewPrivileges" | "limitFileSize" | "installFilter"
  >;
  readonly arch: string;
  readonly selfPid: number;
  /** Another process that lives: the parent. */
  readonly otherPid: number;
  /** The largest file that this process writes. The hypervisor, which is started before, is not bound by it. */
  readonly fileBytesMax: number;
  /** Go on with what could be had. Otherwise a missing part, or a probe that succeeds, is a Failure. */
  readonly allowUnconfined: boolean;
}

export interface SealReport {
  /** Parts that are missing and probes that were not denied, in words for a user. Empty: confined. */
  readonly missing: readonly string[];
  readonly probes: readonly ProbeResult[];
  /** Second walls that this machine does not offer; the process is confined without them. */
  readonly notes: readonly string[];
}

/** What a seal names beside its own process. Nothing by default. */
export type SealSubjects = Omit<Subjects, "selfPid">;

/** `code` is what the act ended with, "" when it was done. */
export interface ProbeResult {
  readonly probe: ProbeName;
  readonly code: string;
}

export interface Seal {
  /**
   * Closes this process for good, in every thread, and proves it: each probe of the profile is tried and must be
   * denied. Whatever the process opens by path, starts or connects must be there before. Throws
   * `confinement_refused`, which names what is missing; the process may be half confined then, and must end. Once.
   */
  close(subjects?: SealSubjects): Promise<SealReport>;
}

/** Readable for everyone on every Linux, and in no list of ours. */
const FOREIGN_FILE = "/etc/passwd";
/** Landlock's part: before the filter stands, these tell whether the launcher did its work. */
const LANDLOCK_PROBES: readonly ProbeName[] = ["open a foreign file", "open a foreign file on a pool thread"];

/** Begins what takes time and may run beside other work; call it as early as the process knows its plan. */
export function prepareSeal(profile: Profile, options: SealOptions): Seal {
  const ground = { native: options.native, foreignFile: FOREIGN_FILE, otherPid: options.otherPid };
  readAhead();
  // What dials is meant to have one.
  const isApart = profile.probes.includes("make an internet socket");
  const notes = isApart && hasNetwork() ? [NETWORK_NOTE] : [];
  // On the way it starts the pool's threads: made later, a refused one would end the process.
  const opened = runProbes(LANDLOCK_PROBES, ground);
  ignore(opened);
  return {
    async close(subjects = {}) {
      const missing: string[] = [];
      options.native.limitFileSize(options.fileBytesMax);
      if (!(await opened).every(({ code }) => isDenied(code))) {
        missing.push(landlockWords(options.native.landlockAbi()));
      }
      const filterFault = install(profile, options, subjects);
      if (filterFault !== null) missing.push(filterFault);
      const probes = await runProbes(profile.probes, ground);
      // Without a filter every probe succeeds; that is said once.
      if (filterFault === null) {
        missing.push(...probes.filter(({ code }) => !isDenied(code)).map(probeWords));
      }
      if (missing.length > 0 && !options.allowUnconfined) throw refusal(profile.name, missing);
      // Now that the probes came through it alive, what is fatal may be.
      if (filterFault === null && isArch(options.arch)) {
        options.native.installFilter(assemble(compileFatal(profile, options.arch)));
      }
      return { missing, probes, notes };
    },
  };
}

/** `prepareSeal` and `close` at once, for a process that has nothing else to do meanwhile. */
export function seal(profile: Profile, options: SealOptions): Promise<SealReport> {
  return prepareSeal(profile, options).close();
}

/** Why a process of this name does not start, for the user. */
export function refusal(name: string, missing: readonly string[]): Error {
  return jailFailure("confinement_refused", `Cannot confine the ${name}: ${missing.join("; ")}`, {
    detail: "confinement.allow_unconfined in settings.toml lets it run without",
  });
}

/** Null when the filter stands. */
function install(profile: Profile, options: SealOptions, subjects: SealSubjects): string | null {
  const { arch, native, selfPid } = options;
  if (!isArch(arch)) return `there is no seccomp profile for ${arch}`;
  try {
    native.setNoNewPrivileges();
    native.installFilter(assemble(compileAllowed(profile, arch, { ...subjects, selfPid })));
    return null;
  } catch (thrown) {
    return `the kernel refuses a seccomp filter (${messageOf(thrown)})`;
  }
}

/** What Node reads from a file at its first use and could not afterwards: the time zone. */
function readAhead(): void {
  new Date(0).getTimezoneOffset();
}

const NETWORK_NOTE =
  "the launcher could make no network namespace (`max_net_namespaces` or `max_user_namespaces` is 0, or a container forbids it): the filters alone keep the network away";

/** In an empty namespace not even the loopback interface is up. */
function hasNetwork(): boolean {
  try {
    return Object.keys(networkInterfaces()).length > 0;
  } catch {
    // Whoever may not ask has no way to it either.
    return false;
  }
}

async function runProbes(names: readonly ProbeName[], ground: ProbeGround): Promise<ProbeResult[]> {
  return Promise.all(names.map(async (probe) => ({ probe, code: await PROBE_OF[probe](ground) })));
}

function landlockWords(abi: number): string {
  return abi === 0
    ? "this kernel has no Landlock, or it is switched off (Linux 5.13 and `lsm=landlock` have it)"
    : "Landlock is not in force: the process was not started by capsem-launch";
}

function probeWords({ probe, code }: ProbeResult): string {
  return `it could ${probe} (${code === "" ? "it succeeded" : code})`;
}
