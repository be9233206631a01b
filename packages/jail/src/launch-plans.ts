import { existsSync, readFileSync, realpathSync } from "node:fs";
import { basename } from "node:path";
import { type Grants, libraryPaths } from "@capsem/native";

/**
 * What Node opens by itself to run bundled files, found by running Node 20 under the launcher. It also tries, and
 * does well without: `/proc/self/{cgroup,maps}`, `/proc/meminfo`, `/sys/fs/cgroup`, its own binary, `package.json`
 * above the bundle. Its entropy comes from a system call. `/dev/null` stands in for what a child is not given.
 * To be called by a process that runs on the same binary: it looks at its own libraries.
 */
export function nodeReadPaths(nodeBinary: string, programs: readonly string[]): Required<Grants> {
  const binary = realpathSync(nodeBinary);
  const libraries = libraryPaths(binary);
  const mapped = mappedLibraries(binary);
  return {
    read: [
      ...new Set([
        ...libraries.read,
        ...mapped,
        ...DISTRIBUTED.filter(existsSync),
        ...programs.flatMap(filesOf),
      ]),
    ],
    exec: [...new Set([binary, ...libraries.exec, ...mapped.filter(isLoader)])],
    write: ["/dev/null"],
  };
}

/**
 * A launched program is two or three files (tools/code-cache.mjs): its code cache may be missing. One more is a binary
 * that it alone uses. Asked anew for each start, because a path that is granted must exist.
 */
function filesOf(program: string): string[] {
  const stem = program.replace(/\.cjs$/, "");
  return [
    program,
    ...[`${stem}-main.cjs`, `${stem}-main.cache`, `${stem}.node`].filter((path) => existsSync(path)),
  ];
}

/**
 * What a launched Node finds in its environment. OpenSSL's configuration would be one more file to grant, and no
 * process of ours that is confined uses it. A ring made before the seal would be a way around it. Buffers of some
 * megabytes are taken and given back all the time: glibc keeps that much memory, and two arenas of it.
 */
export const NODE_ENVIRONMENT: Readonly<Record<string, string>> = {
  OPENSSL_CONF: "/dev/null",
  UV_USE_IO_URING: "0",
  MALLOC_MMAP_THRESHOLD_: String(4 * 1024 * 1024),
  MALLOC_TRIM_THRESHOLD_: String(16 * 1024 * 1024),
  MALLOC_ARENA_MAX: "2",
};

/**
 * How a tool worker runs Node; tools/warm-runs.mjs makes its code cache with the same. Garbage of a call is young and
 * small, and there are four such processes on a machine with few processors: V8's own choice, a young generation of
 * 48 MiB that five threads collect and an old one that may grow fourfold before it is looked at, costs a sixth more memory
 * and saves some 2 % of a call's processor time. A smaller one than this costs 5 %.
 */
export const WORKER_NODE_FLAGS: readonly string[] = [
  "--single-threaded-gc",
  "--max-semi-space-size=4",
  "--initial-old-space-size=12",
  "--heap-growing-percent=100",
  "--v8-pool-size=1",
];

/** Debian's and Ubuntu's own Node keeps some of its built-in modules here. */
const DISTRIBUTED: readonly string[] = ["/usr/share/nodejs"];

/** Files that this process has mapped as code: its libraries and loader, wherever a distribution keeps them. */
function mappedLibraries(binary: string): string[] {
  const lines = readFileSync("/proc/self/maps", "utf8").split("\n");
  const paths = lines.flatMap((line) => /^\S+ ..x\S* .*? (\/.*)$/.exec(line)?.[1] ?? []);
  return [...new Set(paths)].filter((path) => path !== binary && !path.endsWith(".node") && existsSync(path));
}

function isLoader(path: string): boolean {
  return /^ld-(linux|musl)/.test(basename(path)) || /^ld-[\d.]+\.so/.test(basename(path));
}
