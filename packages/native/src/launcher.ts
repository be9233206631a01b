import { assert } from "@capsem/base";
import { builtPath } from "./addon.ts";
import type { Grants } from "./qemu-confinement.ts";

/** What an owner asks of `capsem-launch`; launcher/capsem-launch.c says what each option does, and in which order. */
export interface Launch {
  /** The process whose death kills the command: the caller of spawn, on its main thread. */
  parentPid: number;
  /** An absolute path; no search in PATH. */
  command: string;
  args: readonly string[];
  /** Needed when started as root, unless `asRoot` is said. Neither may be 0. */
  user?: { uid: number; gid: number };
  asRoot?: boolean;
  grants: Grants;
  /** Folders that may be written like those of `grants.write`, in which folders may be made and removed too. */
  trees?: readonly string[];
  /** Inherited descriptors whose files may be opened again by way of `/proc/self/fd/N`. */
  readFds?: readonly number[];
  writeFds?: readonly number[];
  /** Descriptors above 2 that stay open; every other one is closed. */
  keepFds?: readonly number[];
  openFilesMax?: number;
  fileBytesMax?: number;
  landlock?: "require" | "try" | "off";
  /** Landlock lets it connect by TCP, to wherever: it judges ports alone. It binds none all the same. */
  mayDial?: true;
  /** Off: for what inherits the empty namespace of its caller. */
  netNamespace?: "require" | "try" | "off";
  /** What a command that stays root keeps; needs `asRoot`, and to be root. */
  capabilities?: readonly Capability[];
  /** Beside PATH and LANG, which are the caller's own. */
  env?: Readonly<Record<string, string>>;
  /**
   * A seccomp program that stands before the command runs and in all that it starts. An equal-test against
   * `LAUNCH_SELF` means the command's own pid.
   */
  filter?: Uint8Array;
}

/** setuid, setgid: to become another user. kill: to signal, and to be the death of, processes of other users. */
export type Capability = "setuid" | "setgid" | "kill";

/** Stands in a filter for the pid that the command will have; the launcher puts it in. No pid is so large. */
export const LAUNCH_SELF = 0x7fffffff;

/** Why the launcher ended before the command ran, by its exit code. The command's own codes are not among them. */
export const LAUNCH_STEPS: Readonly<Record<number, string>> = {
  90: "parent",
  91: "usage",
  92: "session",
  93: "descriptors",
  94: "limits",
  95: "namespaces",
  96: "credentials",
  97: "landlock",
  98: "privileges",
  99: "exec",
};

/** The words to spawn: the launcher of this build, its options, then the command. */
export function launchWords(
  launch: Launch,
  launcherPath: string = builtPath("capsem-launch"),
): { file: string; args: string[] } {
  assert(launch.command.startsWith("/"), "a launched command is an absolute path");
  const { user, grants } = launch;
  const options = [
    ...each("--parent", [launch.parentPid]),
    ...(user === undefined ? [] : ["--uid", String(user.uid), "--gid", String(user.gid)]),
    ...(launch.asRoot === true ? ["--as-root-ok"] : []),
    ...each("--read", grants.read),
    ...each("--exec", grants.exec),
    ...each("--write", grants.write ?? []),
    ...each("--tree", launch.trees ?? []),
    ...each("--read-fd", launch.readFds ?? []),
    ...each("--write-fd", launch.writeFds ?? []),
    // The launcher closes the gaps between them in one pass and wants them rising.
    ...each(
      "--keep-fd",
      [...new Set(launch.keepFds ?? [])].sort((a, b) => a - b),
    ),
    ...each("--nofile", launch.openFilesMax === undefined ? [] : [launch.openFilesMax]),
    ...each("--fsize", launch.fileBytesMax === undefined ? [] : [launch.fileBytesMax]),
    ...each("--landlock", launch.landlock === undefined ? [] : [launch.landlock]),
    ...(launch.mayDial === true ? ["--may-dial"] : []),
    ...each("--net-namespace", launch.netNamespace === undefined ? [] : [launch.netNamespace]),
    ...each("--capability", launch.capabilities ?? []),
    ...each(
      "--env",
      Object.entries(launch.env ?? {}).map(([name, value]) => `${name}=${value}`),
    ),
    ...each("--filter", launch.filter === undefined ? [] : [Buffer.from(launch.filter).toString("hex")]),
  ];
  return { file: launcherPath, args: [...options, "--", launch.command, ...launch.args] };
}

function each(option: string, values: readonly (string | number)[]): string[] {
  return values.flatMap((value) => [option, String(value)]);
}
