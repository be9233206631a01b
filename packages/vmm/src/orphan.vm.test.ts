import { spawn } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { builtPath } from "@capsem/native";
import { expect, test, vi } from "vitest";
import { planCommandLine } from "./command-line.ts";

const QEMU = "/usr/bin/qemu-system-x86_64";

/** An owner in short: it spawns QEMU behind a launcher, says its pid, and stays. */
const SPAWNER = `
const [launcher, ...words] = JSON.parse(process.argv[1]).map((word) => (word === "PARENT" ? String(process.pid) : word));
const file = require("node:fs").openSync(process.execPath);
const stdio = ["ignore", "ignore", "inherit", "pipe", "pipe", "pipe", "pipe", file, file, file, file];
const child = require("node:child_process").spawn(launcher, words, { stdio, env: {}, cwd: "/" });
child.stdio[3].once("data", () => console.log(child.pid));
child.once("exit", (code) => process.exit(code ?? 1));
setTimeout(() => child.kill("SIGKILL"), 60_000);
`;

const launchers: Record<string, string[]> = {
  setpriv: ["/usr/bin/setpriv", "--pdeathsig=KILL", "--"],
  "capsem-launch": [
    ...[
      builtPath("capsem-launch"),
      "--parent",
      "PARENT",
      "--as-root-ok",
      "--landlock",
      "off",
      "--net-namespace",
      "try",
    ],
    ...[3, 4, 5, 6, 7, 8, 9, 10].flatMap((number) => ["--keep-fd", `${number}`]),
    "--",
  ],
};

test.each(Object.entries(launchers))(
  "behind %s no hypervisor outlives a killed owner",
  async (_name, launcher) => {
    expect(existsSync(launcher[0] ?? "") && existsSync(QEMU)).toBe(true);
    const plan = planCommandLine({
      kind: "fork",
      vmId: "vm_orphan",
      cpus: 1,
      memoryMib: 128,
      accelerator: "tcg",
      diskCapacityBytes: 1024 ** 3,
      descriptors: {},
    });
    // The memory is not the point here.
    const words = plan.map((word) =>
      word.replace(/^memory-backend-file,(.*),mem-path=.*$/, "memory-backend-ram,$1"),
    );
    const owner = spawn(process.execPath, ["-e", SPAWNER, JSON.stringify([...launcher, QEMU, ...words])], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    const pid = await new Promise<number>((resolve, reject) => {
      owner.stdout.once("data", (chunk: Buffer) => resolve(Number(chunk.toString())));
      owner.once("exit", (code) => reject(new Error(`the owner ended with ${code}`)));
    });
    expect(readFileSync(`/proc/${pid}/comm`, "utf8")).toContain("qemu");
    owner.kill("SIGKILL");
    await vi.waitFor(() => expect(existsSync(`/proc/${pid}`) && !isZombie(pid)).toBe(false), {
      timeout: 2_000,
      interval: 5,
    });
  },
);

function isZombie(pid: number): boolean {
  try {
    return /^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, "utf8"));
  } catch {
    return true;
  }
}
