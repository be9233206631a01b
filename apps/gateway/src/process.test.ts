import { closeSync, existsSync, mkdirSync, openSync, readFileSync, rmSync, statSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { afterEach, expect, test } from "vitest";
import { WebSocketServer } from "ws";
import { PROCESS_LIMITS } from "./limits.ts";
import { EXIT_CODES } from "./run-gateway.ts";
import { startUpstream, type Upstream } from "./testing/fake-upstream.ts";
import { answerOf, httpClient } from "./testing/http-client.ts";
import { type Run, useProgram } from "./testing/program.ts";
import { WsClient } from "./testing/ws-client.ts";
import { ensureToken, rotateToken, tokenPath } from "./token-file.ts";

const { newHome, run } = await useProgram();
const upstreams: Upstream[] = [];
afterEach(async () => {
  for (const upstream of upstreams.splice(0)) await upstream.close();
});

async function serve(home: string, ...more: string[]): Promise<Run & { port: number }> {
  const started = run("serve", "--home", home, "--allow-unconfined", "--port", "0", ...more);
  await expect.poll(started.out, { timeout: 15_000 }).toContain("\n");
  return { ...started, port: (JSON.parse(started.out()) as { port: number }).port };
}

const runOf = (home: string) => join(home, "run");
const readRun = (home: string, name: string) => readFileSync(join(runOf(home), name), "utf8").trim();
const tokenOf = (home: string) => readFileSync(tokenPath(runOf(home)), "utf8").trim();

test("it makes its token, says where it listens, serves, logs and leaves no file but token and log", async () => {
  const home = newHome();
  expect(await run("token", "ensure", "--home", home).exited).toBe(0);
  const { child, exited, port } = await serve(home);
  expect(readRun(home, "gateway.port")).toBe(String(port));
  expect(readRun(home, "gateway.pid")).toBe(String(child.pid));
  for (const name of ["gateway.port", "gateway.pid", "gateway.token"]) {
    expect(statSync(join(runOf(home), name)).mode & 0o777).toBe(0o600);
  }
  upstreams.push(await startUpstream(join(runOf(home), "service.sock")));
  expect((await httpClient(port, tokenOf(home)).get("/status")).status).toBe(200);
  child.kill("SIGTERM");
  expect(await exited).toBe(EXIT_CODES.stopped);
  expect(existsSync(join(runOf(home), "gateway.port"))).toBe(false);
  expect(existsSync(join(runOf(home), "gateway.pid"))).toBe(false);
  expect(existsSync(tokenPath(runOf(home)))).toBe(true);
  const text = readFileSync(join(home, "logs", "gateway.jsonl"), "utf8");
  const lines = text
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line) as { message: string });
  expect(lines.map(({ message }) => message)).toEqual(["started", "asked to stop", "stopped"]);
  expect(text).not.toContain(tokenOf(home));
});

test("it refuses to start without a gatekeeper unless told so, without a token, with a wrong command line", async () => {
  const home = newHome();
  mkdirSync(runOf(home), { recursive: true });
  ensureToken(runOf(home));
  const unconfined = run("serve", "--home", home, "--port", "0");
  expect(await unconfined.exited).toBe(EXIT_CODES.failed);
  expect(unconfined.errors()).toContain("Cannot reach the gatekeeper");
  const wrong = run("serve", "--token", "x");
  expect(await wrong.exited).toBe(EXIT_CODES.usage);
  rmSync(tokenPath(runOf(home)));
  const bare = run("serve", "--home", home, "--port", "0", "--allow-unconfined");
  expect(await bare.exited).toBe(EXIT_CODES.failed);
  expect(existsSync(join(runOf(home), "gateway.port"))).toBe(false);
});

test("a taken port has its own exit code", async () => {
  const home = newHome();
  await run("token", "ensure", "--home", home).exited;
  const taken = createServer();
  const port = await new Promise<number>((resolve) => {
    taken.listen(0, "127.0.0.1", () => resolve((taken.address() as { port: number }).port));
  });
  const second = run("serve", "--home", home, "--allow-unconfined", "--port", String(port));
  expect(await second.exited).toBe(EXIT_CODES.portTaken);
  expect(second.errors()).toBe("capsem gateway: Cannot listen: the port is taken\n");
  taken.close();
});

test("two gateways coexist on different ports, of one home and of two", async () => {
  const [one, other] = [newHome(), newHome()];
  for (const home of [one, other]) await run("token", "ensure", "--home", home).exited;
  const gateways = [await serve(one), await serve(one), await serve(other)];
  expect(new Set(gateways.map(({ port }) => port)).size).toBe(3);
  for (const [index, { port }] of gateways.entries()) {
    const token = tokenOf(index < 2 ? one : other);
    expect((await httpClient(port, token).get("/status")).status).toBe(502);
    expect((await httpClient(port, tokenOf(index < 2 ? other : one)).get("/status")).status).toBe(401);
  }
  // The first one's end leaves the files of the second, which came later.
  gateways[0]?.child.kill("SIGTERM");
  await gateways[0]?.exited;
  expect(readRun(one, "gateway.pid")).toBe(String(gateways[1]?.child.pid));
  // A rotation is for both gateways of a home: nobody has to find them.
  const before = tokenOf(one);
  await run("token", "rotate", "--home", one).exited;
  expect((await httpClient(gateways[1]?.port ?? 0, before).get("/status")).status).toBe(401);
});

test("a home whose socket path is longer than the system takes works", async () => {
  const home = newHome("h".repeat(150));
  await run("token", "ensure", "--home", home).exited;
  const { port } = await serve(home);
  const folder = runOf(home);
  // The server names its socket through the folder too, as the service does.
  const fd = openSync(folder, "r");
  upstreams.push(await startUpstream(`/proc/self/fd/${fd}/service.sock`));
  closeSync(fd);
  expect(join(folder, "service.sock").length).toBeGreaterThan(107);
  expect((await httpClient(port, tokenOf(home)).get("/status")).status).toBe(200);
});

test("a hang-up makes it look at the token at once, and it goes on", async () => {
  const home = newHome();
  await run("token", "ensure", "--home", home).exited;
  const { child, port, exited } = await serve(home);
  rotateToken(runOf(home));
  child.kill("SIGHUP");
  const log = join(home, "logs", "gateway.jsonl");
  await expect.poll(() => readFileSync(log, "utf8"), { timeout: 10_000 }).toContain("token replaced");
  expect((await httpClient(port, tokenOf(home)).get("/status")).status).toBe(502);
  child.kill("SIGINT");
  expect(await exited).toBe(EXIT_CODES.stopped);
});

test("when it stops, WebSockets hear 1001, what is nearly done finishes, and the rest is cut in time", async () => {
  const home = newHome();
  await run("token", "ensure", "--home", home).exited;
  const upstream = await startUpstream(join(runOf(home), "service.sock"));
  upstreams.push(upstream);
  const sockets = new WebSocketServer({ noServer: true });
  upstream.onUpgrade = (request, socket, head) => {
    sockets.handleUpgrade(request, socket, head, (one) => one.on("error", () => undefined));
  };
  const { child, port, exited } = await serve(home);
  const client = httpClient(port, tokenOf(home));
  const stream = new WsClient(port, "/vms/vm_abcdefghij234567/stream", {
    token: tokenOf(home),
    protocols: ["capsem.stream.v1"],
  });
  expect(await stream.refusal).toBeNull();
  let finish: (() => void) | null = null;
  upstream.onRequest = (request, response) => {
    if (request.url === "/status") finish = () => response.end("late");
    else response.writeHead(200).write("part");
  };
  const late = client.get("/status");
  const endless = client.begin("GET", "/vms/list");
  endless.end();
  const answer = await answerOf(endless);
  const cut = new Promise((resolve) => answer.once("error", resolve));
  answer.resume();
  await expect.poll(() => finish).not.toBeNull();
  const startedMs = performance.now();
  child.kill("SIGTERM");
  expect((await stream.closed).code).toBe(1001);
  (finish as (() => void) | null)?.();
  expect(String((await late).bytes)).toBe("late");
  await cut;
  expect(await exited).toBe(EXIT_CODES.stopped);
  expect(performance.now() - startedMs).toBeLessThan(PROCESS_LIMITS.closeTimeoutMs + 3_000);
});
