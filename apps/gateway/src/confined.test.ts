import { existsSync, mkdirSync, readFileSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { native } from "@capsem/native";
import { afterEach, expect, test, vi } from "vitest";
import { useRigs } from "../../service/src/testing/use-rigs.ts";
import { EXIT_CODES } from "./run-gateway.ts";
import { startUpstream, type Upstream } from "./testing/fake-upstream.ts";
import { httpClient } from "./testing/http-client.ts";
import { useProgram } from "./testing/program.ts";
import { WsClient } from "./testing/ws-client.ts";
import { ensureToken, rotateToken, tokenPath } from "./token-file.ts";

vi.setConfig({ testTimeout: 90_000 });

const usable = process.platform === "linux" && native().landlockAbi() > 0;
if (!usable) console.log("skipped: a sealed gateway, because this kernel has no Landlock");
const confined = test.skipIf(!usable);

const serviceWith = useRigs();
const { newHome, run } = await useProgram();
const daemons: number[] = [];
const upstreams: Upstream[] = [];
afterEach(async () => {
  for (const pid of daemons.splice(0)) await end(pid);
  for (const upstream of upstreams.splice(0)) await upstream.close();
});

const runOf = (home: string) => join(home, "run");
const tokenOf = (home: string) => readFileSync(tokenPath(runOf(home)), "utf8").trim();

async function start(
  home: string,
  ...more: string[]
): Promise<{ port: number; pid: number; confined: boolean }> {
  const started = run("start", "--home", home, "--port", "0", ...more);
  expect(await started.exited, started.errors()).toBe(EXIT_CODES.stopped);
  const said = JSON.parse(started.out()) as { port: number; pid: number; confined: boolean };
  daemons.push(said.pid);
  return said;
}

async function end(pid: number): Promise<void> {
  if (!isAlive(pid)) return;
  process.kill(pid, "SIGTERM");
  await expect.poll(() => isAlive(pid), { timeout: 15_000 }).toBe(false);
}

function isAlive(pid: number): boolean {
  try {
    // A daemon that ended and whom nobody has waited for yet is no longer one.
    return !/\) Z /.test(readFileSync(`/proc/${pid}/stat`, "utf8"));
  } catch {
    return false;
  }
}

function gatewayPid(gatekeeper: number): number {
  return Number(readFileSync(`/proc/${gatekeeper}/task/${gatekeeper}/children`, "utf8").trim());
}

function statusOf(pid: number, field: string): string {
  return new RegExp(`^${field}:\\s+(.*)$`, "m").exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1] ?? "";
}

confined(
  "a sealed gateway serves a real service: requests, uploads, streams, rotation, recovery",
  async () => {
    const service = await serviceWith();
    const home = service.layout.home;
    const { port, pid, confined: isConfined } = await start(home);
    expect(isConfined).toBe(true);
    const inside = gatewayPid(pid);
    expect(statusOf(inside, "Seccomp")).toBe("2");
    expect(statusOf(inside, "NoNewPrivs")).toBe("1");
    const client = httpClient(port, tokenOf(home));
    const created = await client.call("POST", "/vms/create", { body: "{}" });
    expect(created.status, created.bytes.toString()).toBe(200);
    const { id } = JSON.parse(created.bytes.toString()) as { id: string };
    const bytes = Buffer.alloc(20_000_000, "abcdefg");
    const file = `/vms/${id}/files/content?path=a.bin`;
    expect((await client.call("PUT", file, { body: bytes })).status).toBe(200);
    expect((await client.get(file)).bytes.equals(bytes)).toBe(true);
    const stream = new WsClient(port, `/vms/${id}/stream`, {
      protocols: ["capsem.stream.v1", `capsem.token.${tokenOf(home)}`],
    });
    expect(await stream.refusal).toBeNull();
    const many = await Promise.all(Array.from({ length: 60 }, () => client.get("/vms/list")));
    expect(many.map(({ status }) => status)).toEqual(Array(60).fill(200));
    rotateToken(runOf(home));
    expect((await stream.closed).code).toBe(4401);
    expect((await client.get("/status")).status).toBe(401);
    expect((await httpClient(port, tokenOf(home)).get("/vms/list")).status).toBe(200);
    await end(pid);
    expect(existsSync(join(runOf(home), "gateway.port"))).toBe(false);
  },
);

confined("a sealed gateway finds the service away and back, hears signals and logs what it met", async () => {
  const home = newHome();
  const { port, pid } = await start(home);
  const client = httpClient(port, tokenOf(home));
  expect(await client.get("/status")).toMatchObject({ status: 502, kind: "service_away" });
  upstreams.push(await startUpstream(join(runOf(home), "service.sock")));
  expect((await client.get("/status")).status).toBe(200);
  rotateToken(runOf(home));
  process.kill(pid, "SIGHUP");
  const log = () => readFileSync(join(home, "logs", "gateway.jsonl"), "utf8");
  await expect.poll(log, { timeout: 10_000 }).toContain("token replaced");
  for (let count = 0; count < 25; count++) await httpClient(port, null).get("/status");
  await end(pid);
  const lines = log()
    .trim()
    .split("\n")
    .map((line) => (JSON.parse(line) as { message: string }).message);
  expect(lines).toEqual([
    "started",
    "service away",
    "service back",
    "token replaced",
    "authentication failed",
    "authentication throttled",
    "asked to stop",
    "stopped",
  ]);
  expect(log()).not.toContain(tokenOf(home));
});

confined("a second gateway of a home, and a taken port, are told apart", async () => {
  const home = newHome();
  await start(home);
  const second = run("start", "--home", home, "--port", "0");
  expect(await second.exited).toBe(EXIT_CODES.alreadyRunning);
  expect(second.errors()).toBe("capsem gateway: Cannot start the gateway: another one runs for this home\n");
  const taken = createServer();
  const port = await new Promise<number>((resolve) => {
    taken.listen(0, "127.0.0.1", () => resolve((taken.address() as { port: number }).port));
  });
  const third = run("start", "--home", newHome(), "--port", String(port));
  expect(await third.exited).toBe(EXIT_CODES.portTaken);
  taken.close();
});

test("without confinement it starts only when told so, and what goes wrong is said", async () => {
  const home = newHome();
  const { port, confined: isConfined } = await start(home, "--allow-unconfined");
  expect(isConfined).toBe(false);
  expect((await httpClient(port, tokenOf(home)).get("/status")).status).toBe(502);
  const spoiled = newHome();
  mkdirSync(runOf(spoiled), { recursive: true });
  ensureToken(runOf(spoiled));
  const { chmodSync } = await import("node:fs");
  chmodSync(tokenPath(runOf(spoiled)), 0o644);
  for (const more of usable ? [[], ["--allow-unconfined"]] : [["--allow-unconfined"]]) {
    const refused = run("start", "--home", spoiled, "--port", "0", ...more);
    expect(await refused.exited).toBe(EXIT_CODES.failed);
    expect(refused.errors()).toContain("others than its owner may read or write it");
  }
});
