import { existsSync } from "node:fs";
import { join } from "node:path";
import type { AskInfo } from "@capsem/api";
import { CapsemError, type Vm } from "@capsem/sdk";
import { afterAll, beforeAll, expect, test } from "vitest";
import { isAlive, type Rig, type RunningCli, startRig, until } from "./support/rig.ts";

const RULE = "profiles.rules.ask-marks";
let rig: Rig;
let vm: Vm;
let watch: RunningCli;
/** What `asks watch --json` printed, and how long after the ask was made. */
const seen: { readonly ask: AskInfo; readonly afterMs: number }[] = [];

beforeAll(async () => {
  rig = await startRig({
    pool: 1,
    rules: [
      "[profiles.rules.ask-marks]",
      'action = "ask"',
      `match = 'process.command.startsWith("touch ")'`,
      'reason = "it leaves a mark"',
    ].join("\n"),
  });
  vm = await rig.create({ name: "asked" });
  watch = rig.startCli(["asks", "watch", "--json"], { timeoutMs: 600_000 });
  let rest = "";
  watch.child.stdout?.on("data", (chunk: Buffer) => {
    const lines = (rest + chunk.toString()).split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) {
      const ask = JSON.parse(line) as AskInfo;
      seen.push({ ask, afterMs: Date.now() - Date.parse(ask.created_at) });
    }
  });
});
afterAll(async () => {
  watch.child.kill("SIGKILL");
  await rig.stop();
});

/** The ask for a command, once the watching terminal has shown it in a state. */
async function shown(command: string, state: AskInfo["state"]): Promise<AskInfo> {
  const find = () => seen.find(({ ask }) => ask.title.includes(command) && ask.state === state)?.ask;
  await until(`"${command}" is shown as ${state}`, 20_000, () => find() !== undefined);
  return find() as AskInfo;
}

/** Why a command was not run. */
const failed = (command: string, signal = new AbortController().signal): Promise<unknown> =>
  vm.exec(command, { signal }).then(
    ({ exit_code }) => `it ran, and ended with ${exit_code}`,
    (error: unknown) => error,
  );

const has = async (path: string) => (await vm.exec({ command: `test -e ${path}` })).exit_code === 0;
const refusal = (ask: AskInfo, text: string) => ({
  kind: "policy",
  ruleId: RULE,
  askId: ask.id,
  message: expect.stringContaining(text),
});

test("an asked command waits, is answered from another terminal by six characters, and goes on", async () => {
  const held = rig.startCli(["exec", "asked", "touch one; echo went on"]);
  const ask = await shown("touch one", "pending");
  expect(ask).toMatchObject({ rule_id: RULE, reason: "it leaves a mark", vm_name: "asked", is_held: true });
  expect(await has("one")).toBe(false);
  const short = ask.id.slice(4, 10);
  const list = await rig.cli(["asks", "list"]);
  expect(list.stdout.toString()).toMatch(new RegExp(`${short}.*asked.*touch one`));
  expect(await rig.cli(["asks", "approve", short])).toMatchObject({ code: 0 });
  const { code, stdout } = await held.result;
  expect([code, stdout.toString(), await has("one")]).toEqual([0, "went on\n", true]);
  // Whoever comes second is told who was first.
  const second = await rig.cli(["asks", "deny", ask.id]);
  expect(second).toMatchObject({ code: 1, stderr: expect.stringContaining("approved") });
  // It served once: the same command is asked about again.
  const again = rig.startCli(["exec", "asked", "touch one; echo went on"]);
  const other = await shownAgain(ask);
  await rig.client.asks.resolve(other.id, { approve: false, note: "enough marks" });
  expect(await again.result).toMatchObject({ code: 125, stderr: expect.stringContaining("enough marks") });
});

/** Another ask for the same act. */
async function shownAgain(before: AskInfo): Promise<AskInfo> {
  const find = () => seen.find(({ ask }) => ask.digest === before.digest && ask.id !== before.id)?.ask;
  await until("it is asked again", 20_000, () => find() !== undefined);
  return find() as AskInfo;
}

test("a denied command has not run, and its agent is told by which rule and why", async () => {
  const held = rig.startCli(["exec", "asked", "touch two"]);
  const ask = await shown("touch two", "pending");
  expect(await rig.cli(["asks", "deny", ask.id.slice(4, 10), "--note", "not on a Friday"])).toMatchObject({
    code: 0,
  });
  const { code, stderr } = await held.result;
  expect([code, await has("two")]).toEqual([125, false]);
  for (const part of [RULE, "it leaves a mark", "not on a Friday", ask.id]) expect(stderr).toContain(part);
});

test("a caller that leaves ends its ask, and nothing of it is done", async () => {
  const abort = new AbortController();
  const held = failed("touch three", abort.signal);
  const ask = await shown("touch three", "pending");
  abort.abort();
  expect(await held).toMatchObject({ kind: "cancelled" });
  await shown("touch three", "expired");
  await expect(rig.client.asks.resolve(ask.id, { approve: true })).rejects.toMatchObject({
    kind: "wrong_state",
  });
  expect(await has("three")).toBe(false);
});

test("an ask is shown where somebody watches within 200 ms", () => {
  const pending = seen.filter(({ ask }) => ask.state === "pending").map(({ afterMs }) => afterMs);
  expect(pending.length).toBeGreaterThan(3);
  // The machine may be busy with others: what counts is what it can.
  expect(Math.min(...pending)).toBeLessThan(200);
});

test("an ask outlives the service: approved after a restart it serves one retry, and no other command", async () => {
  const held = failed("touch four");
  const ask = await shown("touch four", "pending");
  await until("it is on the disk", 5_000, () => existsSync(join(rig.home, "asks", `${ask.id}.json`)));
  const pid = rig.servicePid();
  process.kill(pid, "SIGKILL");
  expect(await held).toBeInstanceOf(CapsemError);
  await until("the service is gone", 10_000, () => !isAlive(pid));
  await rig.startService();
  const [waiting] = await rig.client.asks.list({ state: "pending" });
  expect(waiting).toMatchObject({ id: ask.id, expires_at: ask.expires_at, is_held: false });
  await vm.start();
  const approved = await rig.cli(["asks", "approve", ask.id.slice(4, 10)]);
  expect(approved).toMatchObject({ code: 0, stderr: expect.stringContaining("within ten minutes") });

  const abort = new AbortController();
  const other = failed("touch four five", abort.signal);
  await shown("touch four five", "pending");
  abort.abort();
  expect(await other).toMatchObject({ kind: "cancelled" });
  expect(await has("five")).toBe(false);

  expect((await vm.exec("touch four")).exit_code).toBe(0);
  expect(await has("four")).toBe(true);
  const twice = failed("touch four");
  const next = await shownAgain(ask);
  await rig.client.asks.resolve(next.id, { approve: false });
  expect(await twice).toMatchObject(refusal(next, "denied"));
  // What was cut off is in the story too.
  const outcomes: unknown[] = [];
  for await (const { outcome } of vm.history({ search: "touch four" })) outcomes.push(outcome);
  expect(outcomes).toEqual(["denied", "done", "cancelled", "interrupted"]);
});

test("what nobody watches expires soon, and was not done", async () => {
  watch.child.kill("SIGKILL");
  await watch.result;
  await rig.client.settings.edit([{ key: "asks.unattended_secs", value: 1 }]);
  const refused = await failed("touch six");
  const [ask] = await rig.client.asks.list({ state: "expired" });
  expect(refused).toMatchObject(refusal(ask as AskInfo, "nobody answered in time"));
  expect(await has("six")).toBe(false);
});
