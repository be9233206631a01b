import { execFileSync, spawn } from "node:child_process";
import { existsSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, expect, test, vi } from "vitest";
import { type CliRunner, createCliRunner, endOf } from "./testing/cli-runner.ts";

// Each step starts a program, which on a loaded machine takes its time.
vi.setConfig({ testTimeout: 60_000 });

let cli: CliRunner;
// What confines a gateway is not beside the bundles of a test; the product's own start has its tests on real VMs.
const START = ["gateway", "start", "--allow-unconfined"];

beforeAll(async () => {
  cli = await createCliRunner();
}, 60_000);
afterEach(async () => {
  await cli.run(["gateway", "stop", "--force"]);
});
afterAll(() => cli.close());

interface Shown {
  running: boolean;
  started: boolean;
  pid: number;
  port: number;
  url: string;
  token_file: string;
}

async function started(...more: string[]): Promise<Shown> {
  const ran = await cli.run([...START, "--port", "0", ...more, "--json"]);
  expect(ran.code, ran.stderr + ran.stdout).toBe(0);
  return JSON.parse(ran.stdout) as Shown;
}

async function statusOf(url: string, tokenFile: string): Promise<number> {
  const token = readFileSync(tokenFile, "utf8").trim();
  return (await fetch(`${url}/status`, { headers: { authorization: `Bearer ${token}` } })).status;
}

test("one command starts service and gateway, prints where they are, and never the token", async () => {
  await cli.run(["service", "stop"]);
  const ran = await cli.run([...START, "--port", "0"]);
  const tokenFile = join(cli.home, "run/gateway.token");
  expect(ran).toMatchObject({ code: 0, stderr: "" });
  expect(ran.stdout).toMatch(
    /^started, pid \d+\nurl {7}http:\/\/127\.0\.0\.1:\d+\ntoken {5}\S+\/run\/gateway\.token\nconfined {2}no\n$/,
  );
  expect(ran.stdout).not.toContain(readFileSync(tokenFile, "utf8").trim());
  expect(statSync(tokenFile).mode & 0o777).toBe(0o600);
  const url = /http:\S+/.exec(ran.stdout)?.[0] ?? "";
  expect(await statusOf(url, tokenFile)).toBe(200);
  expect((await cli.run(["status"])).stdout).toMatch(
    /^gateway {6}http:\/\/127\.0\.0\.1:\d+, pid \d+, not confined$/m,
  );
});

test("a second start finds the first, another port is refused, a free one is taken", async () => {
  const first = await started();
  expect(first).toMatchObject({ running: true, started: true });
  expect(await started()).toMatchObject({ started: false, pid: first.pid, port: first.port });
  const other = await cli.run([...START, "--port", String(first.port === 19_999 ? 19_998 : 19_999)]);
  expect(other).toMatchObject({
    code: 1,
    stderr: expect.stringContaining(`one runs on port ${first.port}; `),
  });
  expect((await cli.run(["gateway", "status"])).code).toBe(0);
});

test("a port that was chosen is taken again, and a free one is for once", async () => {
  const { port } = await started();
  await cli.run(["gateway", "stop"]);
  expect((await cli.run([...START, "--port", String(port)])).code).toBe(0);
  await cli.run(["gateway", "stop"]);
  await started();
  await cli.run(["gateway", "stop"]);
  const again = await cli.run([...START, "--json"]);
  expect(JSON.parse(again.stdout)).toMatchObject({ port, service: true });
});

test("status says when the service behind it is away", async () => {
  await started();
  await cli.run(["service", "stop"]);
  const ran = await cli.run(["gateway", "status"]);
  expect(ran).toMatchObject({
    ...{ code: 0, stdout: expect.stringMatching(/\nservice {3}away; capsem service start starts it\n$/) },
  });
  expect(JSON.parse((await cli.run(["gateway", "status", "--json"])).stdout)).toMatchObject({
    service: false,
  });
  await cli.run(["service", "start"]);
  expect((await cli.run(["gateway", "status"])).stdout).not.toContain("away");
});

test("a port that is taken is told with what to do", async () => {
  const taken = createServer();
  const port = await new Promise<number>((resolve) => {
    taken.listen(0, "127.0.0.1", () => resolve((taken.address() as { port: number }).port));
  });
  expect(await cli.run([...START, "--port", String(port)])).toMatchObject({
    code: 1,
    stderr: `capsem: Cannot start the gateway: port ${port} is taken; --port chooses another\n`,
  });
  taken.close();
  expect(await cli.run(["gateway", "status"])).toMatchObject({ code: 1, stdout: "not running\n" });
});

test("rotate replaces the token at once, with and without a gateway", async () => {
  const { url, token_file: tokenFile } = await started();
  const before = readFileSync(tokenFile, "utf8");
  expect((await cli.run(["gateway", "rotate"])).stdout).toBe(`new token in ${tokenFile}\n`);
  expect(readFileSync(tokenFile, "utf8")).not.toBe(before);
  await expect
    .poll(
      async () =>
        (await fetch(`${url}/status`, { headers: { authorization: `Bearer ${before.trim()}` } })).status,
    )
    .toBe(401);
  await expect.poll(() => statusOf(url, tokenFile)).toBe(200);
  await cli.run(["gateway", "stop"]);
  const kept = readFileSync(tokenFile, "utf8");
  await started();
  expect(readFileSync(tokenFile, "utf8")).toBe(kept);
  await cli.run(["gateway", "stop"]);
  expect((await cli.run(["gateway", "rotate", "--json"])).stdout).toContain('"rotated":true');
  expect(readFileSync(tokenFile, "utf8")).not.toBe(kept);
});

test("stop ends it and leaves the service; a stranger with its number gets no signal", async () => {
  const { pid } = await started();
  expect((await cli.run(["gateway", "stop"])).stdout).toBe(`stopped, pid ${pid}\n`);
  expect((await cli.run(["gateway", "stop"])).stdout).toBe("not running\n");
  expect((await cli.run(["service", "status"])).code).toBe(0);
  const stranger = spawn("sleep", ["600"]);
  const end = endOf(stranger);
  const file = join(cli.home, "run/gateway.pid");
  writeFileSync(file, `${stranger.pid}\n`);
  execFileSync("touch", ["-d", "2001-01-01", file]);
  expect((await cli.run(["gateway", "stop", "--force"])).stdout).toBe("not running\n");
  expect(stranger.exitCode).toBe(null);
  stranger.kill("SIGKILL");
  await end;
  expect(existsSync(file)).toBe(true);
});

test("doctor tells of a gateway that is silent, and what to do", async () => {
  const { pid } = await started();
  process.kill(pid, "SIGSTOP");
  expect((await cli.run(["doctor"])).stdout).toContain(
    `MISS  gateway: pid ${pid} does not answer\n      Run ./capsem gateway stop --force\n`,
  );
  expect(await cli.run(START)).toMatchObject({ code: 1, stderr: expect.stringContaining("does not answer") });
  expect((await cli.run(["gateway", "stop", "--force"])).stdout).toBe(`stopped, pid ${pid}\n`);
});
