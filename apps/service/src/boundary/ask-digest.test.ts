import { ROUTES, streamStart } from "@capsem/api";
import { Failure } from "@capsem/base";
import { expect, test } from "vitest";
import { CredentialBook } from "../credential/credential-book.ts";
import { SecretRedactor } from "../credential/redactor.ts";
import { PolicyChanges } from "../policy/policy-changes.ts";
import { useTempPolicies } from "../policy/testing/temp-policy.ts";
import { actContextOf } from "../testing/act-context.ts";
import { askBinding } from "./ask-digest.ts";
import { BOUNDARY_TABLE, type DraftedRoute } from "./boundary-table.ts";
import { judge } from "./judgement.ts";
import type { ActDraft, Boundary } from "./parts.ts";
import { type BoundaryRig, useBoundaryRigs } from "./testing/boundary-rig.ts";
import { FakePolicy } from "./testing/fake-parts.ts";
import { gate } from "./testing/gate.ts";
import { StreamClient } from "./testing/stream-client.ts";

const rigWith = useBoundaryRigs();
const temp = useTempPolicies();
const KEY = Buffer.alloc(32, 3);

/** What each act that comes to it would be approved by; nothing of them is done while it is closed. */
class Watch implements Boundary {
  readonly digests: string[] = [];
  isOpen = false;
  readonly #open = gate().boundary;

  async pass<T>(...[context, draft, work]: Parameters<Boundary["pass"]>): Promise<T> {
    if (this.isOpen) return this.#open.pass(context, draft, work) as Promise<T>;
    this.digests.push(await digestOf(draft));
    throw new Failure("policy", "Cannot do it: the test looks at it alone", { facts: { rule_id: "test" } });
  }

  judgeResult: Boundary["judgeResult"] = (...given) => this.#open.judgeResult(...given);
  noteResult: Boundary["noteResult"] = (...given) => this.#open.noteResult(...given);
  note: Boundary["note"] = (...given) => this.#open.note(...given);
}

async function digestOf(draft: ActDraft): Promise<string> {
  const { event } = judge(new FakePolicy(), { event_id: "0123456789ab" }, draft);
  if (event === null) throw new Error("no event");
  return (await askBinding(KEY, event, draft, [])).digest;
}

interface Call {
  readonly query?: Readonly<Record<string, unknown>>;
  readonly body?: Readonly<Record<string, unknown>>;
  readonly bytes?: Buffer;
}

type OfVm = Exclude<DraftedRoute, never> | "create" | "run" | "purge" | "fileRead" | "stream";
const COMMAND = {
  user: "user",
  cwd: "a",
  env: { A: "b" },
} as const;
/** Each with every argument that the route takes; where two exclude each other, a call for each. */
const CALLS: Readonly<Record<OfVm, readonly Call[]>> = {
  start: [{}],
  stop: [{}],
  restart: [{}],
  delete: [{}],
  purge: [{}],
  rename: [{ body: { name: "new" } }],
  persist: [{ body: { name: "new" } }],
  create: [{ body: { name: "new", cpus: 1, memory_gib: 0.5, env: { A: "b" } } }],
  exec: [
    { body: { ...COMMAND, command: "ls", stdin: { encoding: "utf8", data: "eA==" } } },
    { body: { ...COMMAND, argv: ["ls", "-l"], stdin: { encoding: "utf8", data: "eA==" } } },
  ],
  run: [
    { body: { ...COMMAND, command: "ls", cpus: 1, memory_gib: 0.5, vm_env: { A: "b" }, timeout_secs: 5 } },
    {
      body: { ...COMMAND, argv: ["ls", "-l"], cpus: 1, memory_gib: 0.5, vm_env: { A: "b" }, timeout_secs: 5 },
    },
  ],
  stream: [
    { body: { ...COMMAND, command: "ls", type: "start", kind: "exec" } },
    { body: { ...COMMAND, argv: ["ls", "-l"], type: "start", kind: "exec" } },
  ],
  fileRead: [{ query: { path: "a", offset: 1, length: 2 } }],
  fileWrite: [
    { query: { path: "a", mode: 0o644, offset: 1 }, bytes: Buffer.from("one") },
    { query: { path: "a", mode: 0o644, offset: 1 }, bytes: Buffer.alloc(70_000, "a") },
  ],
  fileDelete: [{ query: { path: "a", recursive: false } }],
  fileMkdir: [{ body: { path: "a", parents: false } }],
  fileRename: [{ body: { path: "a", to: "b" } }],
  treeRead: [{ query: { path: "a" } }],
  treeWrite: [{ query: { path: "a" }, bytes: Buffer.from("tar") }],
};

/** Arguments that an approval is not bound to, and why. */
const FREE: Readonly<Record<string, string>> = {
  "exec.timeout_secs": "it ends the command sooner, as the call's own deadline does, which is no argument",
  "stream.timeout_secs": "as of exec",
  "stream.stdin": "of a stream it is open or not, which has a test of its own",
  "stream.terminal": "how large a person's window is",
  "stream.type": "there is one",
  "stream.kind": "a terminal is one whose input is open, which the digest says",
  "create.hold": "it ends the VM sooner",
  "purge.all": "each VM that it would delete is an act",
};

/** Without it there is no such call, or it is the same as the one with another value. */
const KEPT: ReadonlySet<string> = new Set("path name to command argv user recursive parents".split(" "));

function keysOf(route: OfVm): string[] {
  if (route === "stream") return Object.keys(streamStart.shape);
  const row = ROUTES[route] as { query?: { shape: object }; body?: { shape: object } };
  return [...Object.keys(row.query?.shape ?? {}), ...Object.keys(row.body?.shape ?? {})];
}

/** The same call with one thing in it another one. */
function* changed(value: unknown): Generator<unknown> {
  if (typeof value === "boolean") yield !value;
  else if (typeof value === "number") yield value * 2;
  else if (typeof value === "string")
    yield value === "user" ? "root" : value === "utf8" ? "base64" : `${value}x`;
  else if (Array.isArray(value)) {
    yield [...value, "more"];
    yield value.slice(1);
    for (const [at, item] of value.entries()) for (const other of changed(item)) yield value.with(at, other);
  } else if (typeof value === "object" && value !== null) {
    if (!("encoding" in value)) yield { ...value, MORE: "more" };
    for (const [key, item] of Object.entries(value)) {
      for (const other of changed(item)) yield { ...value, [key]: other };
    }
  }
}

function* others(route: OfVm, { query = {}, body = {}, bytes }: Call): Generator<Call> {
  for (const [part, given] of [
    ["query", query],
    ["body", body],
  ] as const) {
    for (const [key, value] of Object.entries(given)) {
      if (`${route}.${key}` in FREE) continue;
      for (const other of changed(value)) {
        yield { query, body, ...(bytes === undefined ? {} : { bytes }), [part]: { ...given, [key]: other } };
      }
      const { [key]: _, ...without } = given;
      if (!KEPT.has(key)) {
        yield { query, body, ...(bytes === undefined ? {} : { bytes }), [part]: without };
      }
    }
  }
  if (bytes === undefined) return;
  yield { query, body, bytes: Buffer.concat([bytes, Buffer.from("x")]) };
  // Of a tree nobody looks at a byte, and an approval serves one call.
  if (route !== "treeWrite")
    yield { query, body, bytes: Buffer.concat([Buffer.from("x"), bytes.subarray(1)]) };
}

async function send(rig: BoundaryRig, watch: Watch, route: OfVm, id: string, call: Call): Promise<string> {
  const before = watch.digests.length;
  if (route === "stream") {
    const client = await new StreamClient(rig.socket, id).send(call.body ?? {});
    await client.got("error");
  } else {
    const { method, path, request } = ROUTES[route];
    const words = Object.entries(call.query ?? {}).map(([key, value]) => `${key}=${value}`);
    const { bytes, body } = call;
    const reply = await rig.client.call(
      method,
      `${path.replace("{id}", id)}${words.length === 0 ? "" : `?${words.join("&")}`}`,
      bytes === undefined ? (request === "json" ? { body: body ?? {} } : {}) : { bytes },
    );
    expect(reply.status, `${route}: ${reply.bytes.toString()}`).toBe(403);
  }
  expect(watch.digests.length, JSON.stringify([route, call])).toBe(before + 1);
  return watch.digests.at(-1) ?? "";
}

test("an approval is bound to every argument of every act on a VM: with another one it is another act", async () => {
  const watch = new Watch();
  const rig = await rigWith({ boundary: watch });
  watch.isOpen = true;
  // One alone, so that a purge is one act.
  const id = await rig.create({ name: "box" });
  watch.isOpen = false;
  const all = new Map<string, string>();
  for (const [route, calls] of Object.entries(CALLS) as [OfVm, readonly Call[]][]) {
    const known = new Set(
      calls.flatMap(({ query, body }) => [...Object.keys(query ?? {}), ...Object.keys(body ?? {})]),
    );
    const missing = keysOf(route).filter((key) => !known.has(key) && !(`${route}.${key}` in FREE));
    expect(missing, `arguments of ${route} that this test does not know`).toEqual([]);
    for (const call of route === "purge" ? [{ body: { all: true } }] : calls) {
      const digest = await send(rig, watch, route, id, call);
      expect(await send(rig, watch, route, id, call), `${route}: the same act`).toBe(digest);
      all.set(digest, JSON.stringify([route, call]));
      for (const other of others(route, call)) {
        const text = JSON.stringify([route, other]);
        const found = await send(rig, watch, route, id, other);
        expect(all.has(found) && all.get(found) !== text, `${text} is taken for ${all.get(found)}`).toBe(
          false,
        );
        all.set(found, text);
      }
    }
  }
  expect(all.size).toBeGreaterThan(100);
  const drafted = Object.entries(BOUNDARY_TABLE).filter(([, row]) => typeof row === "function");
  expect(Object.keys(CALLS)).toEqual(expect.arrayContaining(drafted.map(([name]) => name)));
});

test("the same act in another VM is another act, and so is one with its input left open", async () => {
  const watch = new Watch();
  const rig = await rigWith({ boundary: watch });
  watch.isOpen = true;
  const [one, other] = [await rig.create({ name: "one" }), await rig.create({ name: "other" })];
  watch.isOpen = false;
  const body = { command: "bash -s" };
  const start = { ...body, type: "start", kind: "exec" };
  const digests = [
    await send(rig, watch, "exec", one, { body }),
    await send(rig, watch, "exec", other, { body }),
    await send(rig, watch, "stream", one, { body: { ...start, stdin: true } }),
    await send(rig, watch, "stream", one, { body: { ...start, kind: "terminal" } }),
  ];
  expect(new Set(digests).size).toBe(4);
});

test("an approval of settings and rules is bound to the whole batch, each key and value of it", async () => {
  const store = await temp().open();
  const watch = new Watch();
  const changes = new PolicyChanges(store, watch);
  const rule = { kind: "put_rule", id: "profiles.rules.a" } as const;
  const fields = { action: "ask", match: 'vm.name == "a"' };
  const batches = [
    [{ kind: "set", key: "limits.running_max", value: 5 }],
    [{ kind: "set", key: "limits.running_max", value: 6 }],
    [{ kind: "reset", key: "limits.running_max" }],
    [
      { kind: "set", key: "limits.running_max", value: 5 },
      { kind: "set", key: "confinement.allow_unconfined", value: true },
    ],
    [{ ...rule, fields }],
    [{ ...rule, fields: { ...fields, enabled: false } }],
    [{ ...rule, fields: { ...fields, priority: 20 } }],
    [{ ...rule, fields: { ...fields, reason: "x" } }],
    [{ ...rule, fields: { ...fields, action: "block" } }],
    [{ ...rule, fields: { ...fields, match: 'vm.name == "b"' } }],
    [{ ...rule, id: "profiles.rules.b", fields }],
  ] as const;
  for (const edits of [...batches, ...batches]) {
    await expect(changes.edit(actContextOf(), edits)).rejects.toThrow("looks at it alone");
  }
  expect(new Set(watch.digests).size).toBe(batches.length);
});

test("an approval of reading files again is bound to what they say, and does nothing once they say more", async () => {
  const rig = temp({ "corp.toml": "[limits]\nrunning_max = 2\n" });
  const store = await rig.open();
  const { boundary, asks, policy } = gate();
  policy.rules(`[profiles.rules.a]\naction = "ask"\nmatch = 'settings.key == "corp.reload"'\n`);
  const changes = new PolicyChanges(store, boundary);
  const reload = async () => {
    const before = asks.held.length;
    const done = changes.reload(actContextOf());
    done.catch(() => undefined);
    await expect.poll(() => asks.held.length).toBe(before + 1);
    return { done, held: asks.held[before] };
  };
  const first = await reload();
  rig.write("corp.toml", "[limits]\nrunning_max = 3\n");
  first.held?.resolve("approved");
  await expect(first.done).rejects.toMatchObject({ kind: "wrong_state" });
  expect(store.settings()["limits.running_max"]).toBe(2);
  const second = await reload();
  expect(second.held?.asked.digest).not.toBe(first.held?.asked.digest);
  second.held?.resolve("approved");
  await second.done;
  expect(store.settings()["limits.running_max"]).toBe(3);
});

test("an approval of a credential is bound to its name, its secret, its hosts and where it is kept", async () => {
  const watch = new Watch();
  const book = await CredentialBook.open({
    folder: temp().home,
    redactor: new SecretRedactor(),
    boundary: watch,
    policyDigest: () => "0".repeat(64),
    nowMs: () => 0,
    random: (bytes) => Buffer.alloc(bytes, 9),
  });
  const given = { name: "forge", secret: "long-enough-1", hosts: ["a.test"], keep: "memory" as const };
  const all = [
    given,
    { ...given, name: "other" },
    { ...given, secret: "long-enough-2" },
    { ...given, hosts: ["a.test", "b.test"] },
    { ...given, hosts: [] },
    { ...given, keep: "file" as const },
  ];
  for (const each of [...all, ...all]) {
    await expect(book.inject(each, actContextOf())).rejects.toThrow("looks at it alone");
  }
  expect(new Set(watch.digests).size).toBe(all.length);
});
