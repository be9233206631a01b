import {
  copyFileSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { type GoldenIdentity, goldenKey } from "./golden-key.ts";
import { type Golden, type GoldenStore, openGoldenStore } from "./golden-store.ts";
import { DRAFT_AGE_MS_MAX } from "./limits.ts";

const IDENTITY: GoldenIdentity = {
  imageDigest: "i",
  agentDigest: "a",
  qemuVersion: "7.2.22",
  machine: "pc-q35-7.2",
  cpuModel: "qemu64",
  accelerator: "tcg",
  cpus: 1,
  memoryMib: 1,
  layoutVersion: 1,
};
const UNLIMITED = { keepKeys: [], countMax: 100, bytesMax: 1e12 };

let root: string;
let nowMs: number;
let alive: Set<number>;
let store: GoldenStore;

beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), "capsem-goldens-"));
  nowMs = Date.now();
  alive = new Set([1]);
  store = open(1);
});
afterEach(() => rmSync(root, { recursive: true, force: true }));

function open(pid: number): GoldenStore {
  return openGoldenStore(root, { pid, nowMs: () => nowMs, isAlive: (other) => alive.has(other) });
}

function keyOf(imageDigest: string): string {
  return goldenKey({ ...IDENTITY, imageDigest });
}

/** Some bytes in a memory of the right size. */
function fill({ ramPath, statePath }: Pick<Golden, "ramPath" | "statePath">): void {
  writeFileSync(ramPath, "memory");
  truncateSync(ramPath, 1024 ** 2);
  writeFileSync(statePath, "device state");
}

async function make(imageDigest: string): Promise<Golden> {
  const draft = await store.draft(keyOf(imageDigest));
  fill(draft);
  return draft.commit({ ...IDENTITY, imageDigest });
}

test("what was committed is found by its key and by no other", async () => {
  const made = await make("one");
  expect(await store.find(keyOf("one"))).toEqual(made);
  expect(await open(2).find(keyOf("one"))).toEqual(made);
  expect(await store.find(keyOf("two"))).toBeNull();
});

test("the key depends on every part of the identity", () => {
  const changed = Object.entries(IDENTITY).map(([name, value]) =>
    goldenKey({ ...IDENTITY, [name]: typeof value === "number" ? value + 1 : `${value}x` }),
  );
  expect(new Set([goldenKey(IDENTITY), ...changed]).size).toBe(changed.length + 1);
});

test("files and folders are for their owner alone", async () => {
  const { folder } = await make("one");
  expect(statSync(folder).mode & 0o777).toBe(0o700);
});

test("a draft without its end counts for nothing", async () => {
  fill(await store.draft(keyOf("one")));
  expect(await store.find(keyOf("one"))).toBeNull();
});

test("a crash before the marker leaves nothing that counts, and collect removes it", async () => {
  const { folder } = await make("one");
  rmSync(join(folder, "COMPLETE"));
  expect(await store.find(keyOf("one"))).toBeNull();
  expect(await store.collect(UNLIMITED)).toEqual({ removed: [keyOf("one")] });
});

const DAMAGE: Record<string, (golden: Golden) => void> = {
  "a state with another byte": ({ statePath }) => writeFileSync(statePath, "device statE"),
  "a shorter state": ({ statePath }) => truncateSync(statePath, 3),
  "no state": ({ statePath }) => rmSync(statePath),
  "a shorter memory": ({ ramPath }) => truncateSync(ramPath, 4096),
  "a longer memory": ({ ramPath }) => truncateSync(ramPath, 1024 ** 2 + 4096),
  "a memory of holes": ({ ramPath }) => {
    truncateSync(ramPath, 0);
    truncateSync(ramPath, 1024 ** 2);
  },
  "no memory": ({ ramPath }) => rmSync(ramPath),
  "no manifest": ({ folder }) => rmSync(join(folder, "manifest.json")),
  "a manifest that is no JSON": ({ folder }) => writeFileSync(join(folder, "manifest.json"), "{"),
  "a manifest of another form": ({ folder }) => writeFileSync(join(folder, "manifest.json"), "[]"),
  "a manifest that is too long": ({ folder }) =>
    writeFileSync(join(folder, "manifest.json"), " ".repeat(1e6)),
};

test.each(Object.entries(DAMAGE))("%s makes a golden none", async (_name, damage) => {
  damage(await make("one"));
  expect(await store.find(keyOf("one"))).toBeNull();
});

test("a golden under another's key is none", async () => {
  const { folder } = await make("one");
  mkdirSync(join(root, keyOf("two")));
  for (const name of readdirSync(folder)) {
    copyFileSync(join(folder, name), join(root, keyOf("two"), name));
  }
  expect(await store.find(keyOf("two"))).toBeNull();
});

test("a broken golden is replaced by the next one", async () => {
  const { statePath } = await make("one");
  writeFileSync(statePath, "broken");
  const again = await make("one");
  expect(await store.find(keyOf("one"))).toEqual(again);
  expect(readdirSync(root)).toEqual([keyOf("one")]);
});

test("a draft that is not whole cannot be committed and is gone", async () => {
  const draft = await store.draft(keyOf("one"));
  writeFileSync(draft.ramPath, "memory of another size");
  writeFileSync(draft.statePath, "state");
  await expect(draft.commit(IDENTITY)).rejects.toMatchObject({ kind: "checkpoint_corrupt" });
  expect(readdirSync(root)).toEqual([]);
});

test("a draft with no files cannot be committed and is gone", async () => {
  const draft = await store.draft(keyOf("one"));
  await expect(draft.commit(IDENTITY)).rejects.toThrow("ENOENT");
  expect(readdirSync(root)).toEqual([]);
});

test("an aborted draft is gone", async () => {
  const draft = await store.draft(keyOf("one"));
  fill(draft);
  await draft.abort();
  expect(readdirSync(root)).toEqual([]);
});

test("collect removes the drafts of makers that are gone, and very old ones", async () => {
  await store.draft(keyOf("mine"));
  await open(77).draft(keyOf("dead"));
  const { removed } = await store.collect(UNLIMITED);
  expect(removed.join()).toContain(keyOf("dead"));
  expect(removed).toHaveLength(1);
  nowMs += DRAFT_AGE_MS_MAX + 60_000;
  expect((await store.collect(UNLIMITED)).removed.join()).toContain(keyOf("mine"));
  expect(readdirSync(root)).toEqual([]);
});

test("collect leaves what it does not know", async () => {
  writeFileSync(join(root, "notes.txt"), "mine");
  mkdirSync(join(root, "draft-of-a-letter"));
  alive.clear();
  expect(await store.collect({ keepKeys: [], countMax: 0, bytesMax: 0 })).toEqual({ removed: [] });
});

test("collect keeps the latest used up to the count", async () => {
  for (const name of ["a", "b", "c"]) {
    nowMs += 1_000;
    await make(name);
    await store.find(keyOf(name));
  }
  nowMs += 1_000;
  await store.find(keyOf("a"));
  const { removed } = await store.collect({ ...UNLIMITED, countMax: 2 });
  expect(removed).toEqual([keyOf("b")]);
});

test("collect keeps what it is told to, which counts too", async () => {
  for (const name of ["a", "b", "c"]) {
    nowMs += 1_000;
    await make(name);
    await store.find(keyOf(name));
  }
  const { removed } = await store.collect({ ...UNLIMITED, countMax: 2, keepKeys: [keyOf("a")] });
  expect(removed).toEqual([keyOf("b")]);
  const all = await store.collect({ keepKeys: [keyOf("a"), keyOf("c")], countMax: 0, bytesMax: 0 });
  expect(all.removed).toEqual([]);
});

test("collect counts allocated bytes, not lengths", async () => {
  await make("a");
  expect((await store.collect({ ...UNLIMITED, bytesMax: 512 * 1024 })).removed).toEqual([]);
  expect((await store.collect({ ...UNLIMITED, bytesMax: 100 })).removed).toEqual([keyOf("a")]);
});

test("collect of a folder that was never made removes nothing", async () => {
  rmSync(root, { recursive: true });
  expect(await store.collect(UNLIMITED)).toEqual({ removed: [] });
});

test.each(["", "..", "../../x", "A".repeat(32)])("the key %j is a bug", async (key) => {
  await expect(store.find(key)).rejects.toThrow("bad golden key");
});
