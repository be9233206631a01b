/**
 * How the static binary is compiled: `gcc` for the machine itself, another compiler for another
 * one (`aarch64-linux-gnu-gcc`). No Makefile: it is one command over all sources.
 */
const sourceNames = [
  "main.c",
  "text.c",
  "mount_at.c",
  "privilege.c",
  "identity.c",
  "disk.c",
  "relay.c",
  "body.c",
  "follow.c",
  "repair.c",
  "workload.c",
  "request.c",
  "job.c",
  "spawn.c",
  "terminal.c",
  "pump.c",
  "entry.c",
  "write.c",
  "tree.c",
  "name.c",
  "link.c",
  "network.c",
  "peer.c",
  "flow.c",
  "lane.c",
  "traffic.c",
  "scan.c",
  "queue.c",
  "calls.c",
  "framing.c",
  "mcp.c",
] as const;

const flags = [
  "-std=gnu17",
  "-D_GNU_SOURCE",
  "-static",
  "-O2",
  "-Wall",
  "-Wextra",
  "-Werror",
  "-fstack-protector-strong",
  "-D_FORTIFY_SOURCE=2",
  "-s",
] as const;

/** `sourceDir` is this folder, `out` the binary to write. The first element is the program to run. */
export function helperBuildCommand(sourceDir: string, out: string, compiler = "gcc"): readonly string[] {
  return [compiler, ...flags, "-o", out, ...sourceNames.map((name) => `${sourceDir}/${name}`)];
}
