import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Client } from "./client.ts";
import { CapsemError, errorOfAnswer, errorOfObject } from "./error.ts";
import { type Rig, startWays, WAYS } from "./testing/ways.ts";

let rig: Rig;
beforeAll(async () => {
  rig = await startWays();
});
afterAll(() => rig.close());

async function failure(work: Promise<unknown>): Promise<CapsemError> {
  try {
    await work;
  } catch (thrown) {
    if (thrown instanceof CapsemError) return thrown;
    throw thrown;
  }
  throw new Error("it did not fail");
}

const NO_PUSH = { action: "block", match: 'process.command.contains("git push")', reason: "not from here" };
const ASK = { action: "ask", match: 'process.command.contains("deploy")', priority: 20 };

describe.each(WAYS)("over the %s", (way) => {
  let client: Client;
  beforeAll(() => {
    client = rig.client(way);
  });

  test("a rule is put, listed in the order of judgement, tried, linted and deleted", async () => {
    const before = await client.rules.list();
    const { digest } = await client.rules.put("no-push", NO_PUSH);
    expect(digest).not.toBe(before.digest);
    await client.rules.put("profiles.rules.deploys", ASK);
    const { rules, preset } = await client.rules.list();
    expect(preset).toBe("developer");
    expect(rules.map(({ id }) => id)).toEqual([
      "profiles.rules.no-push",
      "profiles.rules.deploys",
      "default.allow-exec",
    ]);
    const event = { type: "process.exec", fields: { "process.command": "git push" } };
    expect((await client.rules.evaluate({ event })).decision).toMatchObject({ action: "block" });
    expect(await client.rules.lint("wrong")).toMatchObject({ faults: [{ code: "syntax", line: 1 }] });
    expect((await client.rules.lint()).faults).toEqual([]);
    await client.rules.delete("no-push");
    await client.rules.delete("deploys");
    expect((await failure(client.rules.delete("no-push"))).kind).toBe("rule_not_found");
  });

  test("a refusal names its rule, in the error, its facts and its JSON, also on a stream", async () => {
    await client.rules.put("no-push", NO_PUSH);
    const vm = await client.create();
    for (const error of [await failure(vm.exec("git push")), await failure(vm.stream("git push").output())]) {
      expect(error).toMatchObject({ kind: "policy", ruleId: "profiles.rules.no-push", retryable: false });
      expect(error.facts).toEqual({ rule_id: "profiles.rules.no-push" });
      expect(error.toJSON().error).toEqual({
        kind: "policy",
        reason: `Cannot run in VM "${vm.id}": not from here`,
        status: 403,
        retryable: false,
        rule_id: "profiles.rules.no-push",
      });
    }
    await client.rules.delete("no-push");
    await vm.delete();
  });

  test("a held call goes on when it is approved, fails with its ask when denied, and its ask ends when it leaves", async () => {
    await client.rules.put("deploys", ASK);
    const vm = await client.create();
    const pending = async () => {
      await expect.poll(async () => (await client.asks.list({ state: "pending" })).length).toBe(1);
      return (await client.asks.list({ state: "pending" }))[0]?.id ?? "";
    };
    const good = vm.exec("echo deploy");
    expect(await client.asks.resolve(await pending(), { approve: true, note: "fine" })).toMatchObject({
      state: "approved",
      scope: "once",
      note: "fine",
    });
    expect((await good).stdout.data).toBe("deploy\n");
    const bad = failure(vm.exec("echo deploy"));
    const id = await pending();
    expect((await client.asks.list())[0]).toMatchObject({ id, client: "@capsem/sdk/0.1.0", vm_id: vm.id });
    await client.asks.resolve(id, { approve: false });
    expect(await bad).toMatchObject({ kind: "policy", askId: id, ruleId: "profiles.rules.deploys" });
    expect((await failure(client.asks.resolve(id, { approve: true }))).kind).toBe("wrong_state");
    const abort = new AbortController();
    const left = failure(vm.exec("echo deploy", { signal: abort.signal }));
    await pending();
    abort.abort();
    expect((await left).kind).toBe("cancelled");
    await expect.poll(async () => (await client.asks.list())[0]?.state).toBe("expired");
    await client.rules.delete("deploys");
    await vm.delete();
  });

  test("a tree that a rule wants file by file is refused so, and one file as every act is", async () => {
    const match = 'file.import.name == "secret"';
    await client.rules.put("files", { action: "block", match, reason: "it stays" });
    const vm = await client.create();
    const tree = await failure(vm.trees.write("/workspace", new Uint8Array(1024)));
    expect(tree).toMatchObject({ kind: "policy", needsFiles: true, ruleId: "profiles.rules.files" });
    expect(tree.toJSON().error).toMatchObject({ needs_files: true });
    const file = await failure(vm.files.write("secret", "x"));
    expect([file.kind, file.needsFiles, file.facts]).toEqual([
      "policy",
      false,
      { rule_id: "profiles.rules.files" },
    ]);
    await vm.delete();
    await client.rules.delete("files");
  });

  test("settings are edited all or none, and what was wrong comes with its place", async () => {
    const edits = [{ key: "limits.pool_size", value: 5 }];
    const sizeNow = async () =>
      (await client.settings.info()).settings.find(({ key }) => key === "limits.pool_size")?.value;
    const error = await failure(client.settings.edit([...edits, { key: "limits.poolsize", value: 1 }]));
    expect(error).toMatchObject({ kind: "invalid_input", faults: [{ code: "unknown_key", line: 1 }] });
    expect(await sizeNow()).toBe(2);
    await client.settings.edit(edits);
    expect(await sizeNow()).toBe(5);
    await client.settings.edit([{ key: "limits.pool_size", value: null }]);
    expect(await sizeNow()).toBe(2);
    const locked = client.settings.edit([{ key: "limits.running_max", value: 1 }]);
    expect((await failure(locked)).kind).toBe("locked");
  });

  test("the corporation's policy is read, tried and read again", async () => {
    expect((await client.corp.info()).locked).toEqual(["limits.running_max"]);
    expect(await client.corp.validate("wrong")).toMatchObject({ is_valid: false });
    expect(await client.corp.validate("")).toMatchObject({ is_valid: true });
    expect((await client.corp.reload()).is_present).toBe(true);
  });

  test("a credential is injected, listed without its secret, and deleted", async () => {
    const secret = "a secret of the test";
    const { ref } = await client.credentials.inject({ name: "token", secret, hosts: ["example.com"] });
    const listed = await client.credentials.list();
    expect(listed).toMatchObject([{ ref, name: "token", hosts: ["example.com"], keep: "memory" }]);
    expect(JSON.stringify(listed)).not.toContain(secret);
    await client.credentials.delete(ref);
    expect(await client.credentials.list()).toEqual([]);
  });
});

test("a client says its name and how long it waits, and a name that no header can hold is refused", async () => {
  const { createNodeClient } = await import("./node.ts");
  const seen: (string | undefined)[][] = [];
  const other = await startWays({
    intercept: ({ headers }) => {
      const text = (name: string) => headers[name]?.toString();
      seen.push([text("x-capsem-client"), text("x-capsem-time-left-ms")]);
      return false;
    },
  });
  const named = createNodeClient({ home: other.home, clientName: "tool/1.2" });
  const plain = createNodeClient({ home: other.home });
  try {
    await named.status();
    await plain.status({ timeoutMs: 5_000 });
    const vm = await plain.create();
    await vm.files.write("x", new Uint8Array([1]));
    await vm.exec("true");
    await vm.exec({ command: "true", timeout_secs: 2 });
    (await plain.hold()).drop();
    expect(seen).toEqual([
      ["tool/1.2", "30000"],
      ["@capsem/sdk/0.1.0", "5000"],
      ["@capsem/sdk/0.1.0", "120000"],
      ...[undefined, undefined, "12000", undefined].map((left) => ["@capsem/sdk/0.1.0", left]),
    ]);
  } finally {
    for (const client of [named, plain]) client.close();
    await other.close();
  }
  for (const clientName of ["", " a", "a\n", "ü", "x".repeat(129), 5 as unknown as string])
    expect(() => createNodeClient({ home: "/", clientName }), clientName).toThrow(/clientName/);
});

test("a stream whose size is said comes with it, and less than was said is no file", async () => {
  const lengths: (string | undefined)[] = [];
  const other = await startWays({
    intercept: ({ method, headers }) => {
      if (method === "PUT") lengths.push(headers["content-length"]);
      return false;
    },
  });
  async function* parts() {
    yield "ab";
    yield "c";
  }
  try {
    for (const way of WAYS) {
      const vm = await other.client(way).create();
      expect(await vm.files.write("x", parts(), { size: 3 })).toEqual({ bytes: 3 });
      await vm.files.write("x", parts());
      await vm.files.write("x", "abc", { size: 9 });
      for (const size of [2, 4])
        expect((await failure(vm.files.write("y", parts(), { size }))).message).toBe(
          `Cannot send data: it has not the ${size} bytes that it was said to have`,
        );
      expect((await vm.files.read("x")).size).toBe(3);
    }
    // Fetch counts by itself where it can; what was broken off may never have arrived.
    expect(lengths.slice(0, 3)).toEqual(["3", undefined, "3"]);
  } finally {
    await other.close();
  }
});

test("facts of another shape than ours are not there, and never more than there may be", () => {
  const error = errorOfObject({
    kind: "policy",
    reason: "no",
    rule_id: 7,
    ask_id: null,
    needs_files: "yes",
    faults: ["x", null, { message: 1 }, { message: "m", line: "1", column: 1.5, file: 3 }],
  });
  expect([error.ruleId, error.askId, error.needsFiles]).toEqual([undefined, undefined, false]);
  expect(error.faults).toEqual([
    { code: "", message: "m", file: null, line: null, column: null, subject: null },
  ]);
  const many = { kind: "invalid_input", reason: "no", faults: Array(1_000).fill({ message: "m" }) };
  const answer = { status: 400, headers: {}, mutates: true };
  expect(errorOfAnswer(answer, JSON.stringify({ error: many })).faults).toHaveLength(256);
  expect(new CapsemError("policy", "no").facts).toBeUndefined();
});
