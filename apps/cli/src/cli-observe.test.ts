import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { ROUTES } from "@capsem/api";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { renderStats } from "./command/stats.ts";
import { COMMANDS } from "./command-table.ts";
import { findCommand, isGroup } from "./parse.ts";
import { renderSpan } from "./render.ts";
import { type CliRunner, createCliRunner } from "./testing/cli-runner.ts";

// Each step starts a program, which on a loaded machine takes its time.
vi.setConfig({ testTimeout: 60_000 });

let cli: CliRunner;

beforeAll(async () => {
  cli = await createCliRunner();
  await cli.run(["create", "--name", "dev"]);
}, 60_000);
afterAll(() => cli.close());

test("every route has its command, and every command a route or a reason", () => {
  const ofRoutes = new Set<string>();
  for (const [name, { command }] of Object.entries(ROUTES)) {
    if (typeof command !== "string") {
      expect(command.none, name).not.toBe("");
      continue;
    }
    ofRoutes.add(command);
    expect(findCommand(command) !== undefined || isGroup(command), `${name}: ${command}`).toBe(true);
  }
  const others: Readonly<Record<string, string>> = {
    service: "starts and stops the process that serves the routes",
    gateway: "starts and stops a process of its own, over no route",
    mcp: "writes configurations of other programs on this machine",
    doctor: "looks at this machine, with or without a service",
    completions: "is made of the command table alone",
    version: "is this program's own",
  };
  const ofARoute: Readonly<Record<string, string>> = {
    "settings get": "one of settings list",
    "settings reset": "settings set with the default",
    "asks watch": "the route of events",
    "rules show": "the route of rules list",
    "asks deny": "the route of asks approve",
  };
  for (const name of Object.keys(ofARoute)) expect(findCommand(name)?.name, name).toBe(name);
  for (const { name } of COMMANDS) {
    const [word = ""] = name.split(" ");
    const isNamed = ofRoutes.has(name) || ofRoutes.has(word) || name in ofARoute;
    expect(isNamed || word in others, name).toBe(true);
    expect(ofRoutes.has(word) && word in others, name).toBe(false);
  }
});

test("stats, triage, panics and host logs have a table for people and the answer itself for programs", async () => {
  const said = async (...args: string[]) => {
    const ran = await cli.run(args);
    expect(ran.code, ran.stderr).toBe(0);
    return ran.stdout;
  };
  expect(await said("stats")).toMatch(/^started {3}2025-01-02T03:04:05.000Z \(1 min 0 s ago\)\nrequests /);
  expect(JSON.parse(await said("stats", "--json"))).toMatchObject({ uptime_secs: 60, routes: [] });
  expect(await said("triage")).toBe(
    "KIND  COUNT  LAST                  VM  WHAT\nslow  1      2025-01-02T03:04:09Z  -   create was slow\n",
  );
  expect(JSON.parse(await said("triage", "--since", "1h", "--json"))).toMatchObject({ truncated: false });
  expect(await said("panics", "--limit", "1")).toBe(
    "TIME                  PROCESS  PID  MESSAGE\n2025-01-02T03:04:09Z  owner    1    one\n",
  );
  expect(JSON.parse(await said("panics", "--json"))).toMatchObject({ panics: [{ message: "one" }, {}] });
  expect(await said("host-logs", "service")).toBe("service started\nservice is ready\n");
  expect(await said("host-logs", "owner", "--grep", "ready")).toBe("owner is ready\n");
  expect(await cli.run(["triage", "--vm", "dev"])).toMatchObject({
    stdout: "",
    stderr:
      "capsem: nothing went wrong\ncapsem: failed VMs, errors and slow calls are those since the service started\n",
  });
});

test("what they cannot take is told before the service is asked", async () => {
  const cases: [string[], RegExp][] = [
    [
      ["host-logs", "bus"],
      /it is one of service, gateway, owner, ledger, proxy, egress, aggregator, builtin\n$/,
    ],
    [["panics", "--since", "yesterday"], /a span such as 30s/],
    [["triage", "--limit", "0"], /a whole number from 1 to 100/],
    [["host-logs"], /usage is capsem host-logs SOURCE/],
  ];
  for (const [args, text] of cases)
    expect(await cli.run(args)).toMatchObject({ code: 2, stderr: expect.stringMatching(text) });
  expect((await cli.run(["triage", "--vm", "nope"])).code).toBe(1);
});

test("stats of a busy service have each route's times", () => {
  const text = renderStats({
    started_at: "2026-01-01T00:00:00.000Z",
    uptime_secs: 90_000,
    requests: { total: 3, failed: 1, in_flight: 0 },
    routes: [{ route: "create", calls: 3, failed: 1, p50_ms: 1.26, p99_ms: 20, max_ms: 20 }],
    vms: { running: 1, total: 2, created: 3, deleted: 1, failed: 1 },
    pool: { claimed: 2, missed: 1 },
    jobs: { running: 0, started: 4 },
    memory: { service_bytes: 1024 ** 2, owners_bytes: 0, hypervisors_bytes: 3 * 1024 ** 3 },
  });
  expect(text).toContain(
    "ROUTE   CALLS  FAILED  P50 MS  P99 MS  MAX MS\ncreate  3      1       1.3     20.0    20.0\n",
  );
  expect(text).toContain("memory    service 1.0 MiB, owners 0 B, hypervisors 3.0 GiB\n");
  expect([5, 65, 3_700, 90_000].map(renderSpan)).toEqual(["5 s", "1 min 5 s", "1 h 1 min", "1 d 1 h"]);
});

test("list --names is what a person would type", async () => {
  const { stdout } = await cli.run(["create"]);
  expect((await cli.run(["list", "--names"])).stdout).toBe(`dev\n${stdout}`);
});

test("doctor names the VM whose record cannot be read", async () => {
  const folder = join(cli.home, "vms", "vm_aaaaaaaaaaaaaaaa");
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, "vm.json"), "{ not");
  const { stdout } = await cli.run(["doctor"]);
  expect(stdout).toContain(
    "warn  VM records: vm.json of vm_aaaaaaaaaaaaaaaa cannot be read; the disk is kept\n      Mend vms/vm_aaaaaaaaaaaaaaaa/vm.json, or delete the VM: capsem delete vm_aaaaaaaaaaaaaaaa\n",
  );
});
