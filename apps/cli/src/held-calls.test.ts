import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { AskInfo } from "@capsem/api";
import type { Client } from "@capsem/sdk";
import { createClient, nodeTransport } from "@capsem/sdk/node";
import { startFixtureService } from "@capsem/sdk/testing";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { heldCalls } from "./held-calls.ts";

let home: string;
let service: Awaited<ReturnType<typeof startFixtureService>>;
let client: Client;
let isHeld: () => boolean;
const told: AskInfo[] = [];

beforeAll(async () => {
  home = mkdtempSync(join(tmpdir(), "held-"));
  service = await startFixtureService({ home });
  const held = heldCalls(nodeTransport(service.socketPath), (ask) => told.push(ask));
  client = createClient(held.transport);
  isHeld = held.isHeld;
  await client.rules.put("ask", { action: "ask", match: 'process.command.contains("held")' });
});
afterAll(async () => {
  client.close();
  await service.close();
  rmSync(home, { recursive: true, force: true });
});
beforeEach(() => {
  told.length = 0;
  service.seen.length = 0;
});

const followed = () => service.seen.filter((line) => line === "UPGRADE /events").length;

test("calls that are answered at once make no second connection, long ones of a command neither", async () => {
  const vm = await client.create();
  await vm.exec("true");
  // It runs longer than a call may wait before its ask is looked for; its first answer has come before.
  expect((await vm.stream("sleep 0.5; echo two").output()).stdout).toBe("two\n");
  await vm.delete();
  expect([followed(), told]).toEqual([0, []]);
});

test.each(["exec", "stream"] as const)("an ask of our own is told once, and the %s goes on", async (how) => {
  const vm = await client.create();
  const stranger = createClient(nodeTransport(service.socketPath));
  const other = stranger.vm(vm.id).exec("echo held elsewhere");
  const work = how === "exec" ? vm.exec("echo held") : vm.stream("echo held").output();
  await expect.poll(() => told.length).toBe(1);
  expect(told[0]?.title).toBe("echo held");
  expect([followed(), isHeld()]).toEqual([1, true]);
  for (const ask of await client.asks.list({ state: "pending" }))
    await client.asks.resolve(ask.id, { approve: true });
  expect(await work).toMatchObject({ exit_code: 0 });
  await other;
  expect([told.length, isHeld()]).toEqual([1, false]);
  await expect.poll(() => service.state.followerCount).toBe(0);
  stranger.close();
  await vm.delete();
});

test("it looks for its own asks alone, and says so: it is nobody who could answer others", async () => {
  const vm = await client.create();
  const inner = nodeTransport(service.socketPath);
  const opened: [path: string, asks: string | undefined][] = [];
  const spied = heldCalls(
    {
      request: (...given) => inner.request(...given),
      socket: (path, protocols, options) => {
        opened.push([path, options.headers?.["x-capsem-asks"]]);
        return inner.socket(path, protocols, options);
      },
      close: () => inner.close(),
    },
    (ask) => told.push(ask),
  );
  const own = createClient(spied.transport);
  const work = own.vm(vm.id).exec("echo held");
  await expect.poll(() => told.length).toBe(1);
  await client.asks.resolve(told[0]?.id ?? "", { approve: true });
  await work;
  // Whoever follows them for a person, as `asks watch` does, is somebody.
  const events = own.events();
  await events.next();
  await events.return(undefined);
  expect(opened).toEqual([
    ["/events", "own"],
    ["/events", undefined],
  ]);
  own.close();
  await vm.delete();
});

test("the time limit of a call does not run while it is held, and does otherwise", async () => {
  const vm = await client.create();
  const held = vm.exec("echo held", { timeoutMs: 400 });
  await expect.poll(() => told.length).toBe(1);
  // Begun later with the same limit, and held by nobody: when it is late, the first one would be.
  const plain = createClient(heldCalls(nodeTransport(service.socketPath), () => undefined).transport);
  const late = plain.vm(vm.id).exec("sleep 5", { timeoutMs: 400 });
  await expect(late).rejects.toMatchObject({ kind: "timeout", outcome: "unknown" });
  plain.close();
  await client.asks.resolve(told[0]?.id ?? "", { approve: true });
  expect((await held).stdout.data).toBe("held\n");
  async function* stalled() {
    yield new Uint8Array([1]);
    await new Promise(() => undefined);
  }
  const upload = vm.files.write("x", stalled(), { timeoutMs: 300 });
  await expect(upload).rejects.toMatchObject({ kind: "timeout" });
  const aborted = vm.exec("sleep 5", { signal: AbortSignal.timeout(100) });
  await expect(aborted).rejects.toMatchObject({ kind: "cancelled" });
  await vm.delete();
});
