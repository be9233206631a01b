import type { AskInfo } from "@capsem/api";
import type { Client } from "@capsem/sdk";
import { expect, test, vi } from "vitest";
import { AskDesk } from "./ask-desk.ts";
import type { Context } from "./context.ts";
import { KEY_GUARD_MS } from "./limits.ts";
import { fakePowers } from "./testing/fake-powers.ts";

function askOf(letter: string, more: Partial<AskInfo> = {}): AskInfo {
  return {
    id: `ask_${letter.repeat(16)}`,
    state: "pending",
    vm_id: "vm_aaaaaaaaaaaaaaaa",
    vm_name: "dev",
    type: "process.exec",
    title: `deploy ${letter}`,
    rule_id: "profiles.rules.deploys",
    reason: "a person looks first",
    requester: "user uid 1000",
    client: "capsem/0.1.0",
    trace_id: null,
    digest: "",
    created_at: new Date(1_000_000).toISOString(),
    expires_at: new Date(1_060_000).toISOString(),
    is_held: true,
    is_used: false,
    ...{ scope: null, resolver: null, note: null, resolved_at: null },
    event_id: "000000000000",
    scopes: ["once", "vm", "always"],
    ...more,
  };
}

async function open() {
  const fake = fakePowers();
  const resolve = vi.fn<Client["asks"]["resolve"]>(async () => askOf("a"));
  const onEnd = vi.fn();
  const context = { ...fake, json: false, names: new Map(), isHeld: () => false } as unknown as Context;
  const desk = new AskDesk(context, { list: vi.fn(), resolve }, onEnd);
  await desk.open();
  const press = async (keys: string) => {
    fake.type(keys);
    await new Promise((done) => setImmediate(done));
  };
  /** After the time in which a key would be for what was there before. */
  const settle = () => fake.pass(KEY_GUARD_MS);
  return { ...fake, desk, resolve, onEnd, press, settle };
}

test("an ask is shown with its keys, and one answers it", async () => {
  const { desk, text, press, settle, resolve } = await open();
  await desk.ask(askOf("a"));
  expect(text()).toContain("deploy a");
  expect(text()).toContain("in dev, 1 min 0 s left");
  expect(text()).toContain(
    "y yes, this once · v yes, in this VM · a always, by a rule · n no · s later · q end",
  );
  settle();
  await press("x");
  expect(resolve).not.toHaveBeenCalled();
  await press("v");
  expect(resolve).toHaveBeenCalledExactlyOnceWith(askOf("a").id, { approve: true, scope: "vm" });
  await desk.ask(askOf("a", { state: "approved", scope: "vm", resolver: "user" }));
  expect(text()).toContain("approved aaaaaa, deploy a in dev, in this VM (by user)\n");
});

test.each([
  ["y", { approve: true, scope: "once" }],
  ["a", { approve: true, scope: "always" }],
  ["n\r", { approve: false }],
  ["nnot on a Friday\r", { approve: false, note: "not on a Friday" }],
  ["nnöt x\x7fwyz\x15grün \n", { approve: false, note: "grün" }],
])("the key %s answers with %j", async (key, resolution) => {
  const { desk, press, settle, resolve } = await open();
  await desk.ask(askOf("a"));
  settle();
  await press(key);
  expect(resolve).toHaveBeenCalledExactlyOnceWith(askOf("a").id, resolution);
});

test("a key that was meant for the ask before does not answer the next", async () => {
  const { desk, press, settle, resolve, text } = await open();
  await desk.ask(askOf("a"));
  await desk.ask(askOf("b"));
  expect(text()).not.toContain("deploy b");
  settle();
  await press("yyy");
  expect(resolve).toHaveBeenCalledTimes(1);
  await desk.ask(askOf("a", { state: "approved", scope: "once" }));
  expect(text()).toContain("deploy b");
  await press("y");
  expect(resolve).toHaveBeenCalledTimes(1);
  settle();
  await press("n\r");
  expect(resolve).toHaveBeenLastCalledWith(askOf("b").id, { approve: false });
});

test("one that another person answered leaves, and one that is put off comes again", async () => {
  const { desk, press, settle, resolve, text } = await open();
  for (const letter of ["a", "b", "c"]) await desk.ask(askOf(letter));
  await desk.ask(askOf("b", { state: "denied", resolver: "gateway" }));
  settle();
  await press("s");
  expect(text()).toContain("deploy c");
  settle();
  await press("s");
  expect(text().match(/deploy a/g)).toHaveLength(2);
  expect(text()).not.toMatch(/bbbbbb {2}/);
  expect(resolve).not.toHaveBeenCalled();
});

test("what an ask cannot be approved for is offered by no key", async () => {
  const { desk, press, settle, resolve, text } = await open();
  await desk.ask(askOf("a", { scopes: ["once"] }));
  expect(text()).toContain("  y yes, this once · n no");
  settle();
  await press("av");
  expect(resolve).not.toHaveBeenCalled();
});

test("a reason is typed, shown as it is typed, and steers nothing", async () => {
  const { desk, press, settle, text, resolve, onEnd } = await open();
  await desk.ask(askOf("a"));
  settle();
  await press("nqy\u202e\x01q");
  expect(text()).toMatch(/to go back\): qyq$/);
  await press(`${"x".repeat(600)}\r`);
  expect(resolve).toHaveBeenCalledExactlyOnceWith(askOf("a").id, {
    approve: false,
    note: `qyq${"x".repeat(509)}`,
  });
  expect(onEnd).not.toHaveBeenCalled();
});

test.each(["\x03", "\x1b"])(
  "a reason that is taken back by %j answers nothing, and the question stands again",
  async (key) => {
    const { desk, press, settle, text, resolve } = await open();
    await desk.ask(askOf("a"));
    settle();
    await press(`nbecause${key}`);
    expect(resolve).not.toHaveBeenCalled();
    expect(text().match(/deploy a/g)).toHaveLength(2);
  },
);

test("who else answers while a reason is typed ends it, and what came meanwhile waited", async () => {
  const { desk, press, settle, text, resolve } = await open();
  await desk.ask(askOf("a"));
  settle();
  await press("nbec");
  await desk.ask(askOf("b"));
  expect(text()).not.toContain("deploy b");
  await desk.ask(askOf("a", { state: "approved", scope: "once" }));
  expect(text()).toContain("deploy b");
  await press("ause\r");
  expect(resolve).not.toHaveBeenCalled();
});

test("an answer that was refused is said, and the ask may be answered again", async () => {
  const { desk, press, settle, resolve, text } = await open();
  resolve.mockRejectedValueOnce(new Error("gone"));
  await desk.ask(askOf("a"));
  settle();
  await press("y");
  expect(text()).toMatch(/gone\n\n.*deploy a[\s\S]*y yes, this once/);
  settle();
  await press("y");
  expect(resolve).toHaveBeenCalledTimes(2);
});

test.each(["q", "\x03", "\x04"])("the key %j ends it, and the terminal is given back", async (key) => {
  const { desk, press, onEnd, rawModes } = await open();
  await press(key);
  expect(onEnd).toHaveBeenCalledTimes(1);
  desk.close();
  expect(rawModes).toEqual([true, false]);
});

test("words of a guest steer no terminal", async () => {
  const { desk, text } = await open();
  await desk.ask(askOf("a", { title: "evil\u001b[2J\n\rname", reason: "\u202e" }));
  expect(text()).toContain("evil\\x1b[2J\\x0a\\x0dname");
  expect(text()).not.toContain("\u202e");
});
