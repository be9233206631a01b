import {
  chmodSync,
  linkSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Failure } from "@capsem/base";
import { afterEach, beforeEach, expect, test } from "vitest";
import { openKeys } from "./key-files.ts";

const uid = process.getuid?.() ?? -1;
const head = { rows: 7, head: "ab" };
let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "capsem-keys-"));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));
const path = (name: string) => join(folder, name);

function refusal(): string {
  try {
    openKeys(folder, uid);
    return "opened";
  } catch (thrown) {
    return thrown instanceof Failure && thrown.kind === "key_refused"
      ? thrown.message
      : `no refusal: ${thrown}`;
  }
}

test("keys are made once, for their owner alone, and the next start finds them again", () => {
  const first = openKeys(folder, uid);
  const second = openKeys(folder, uid);
  expect(readdirSync(folder).sort()).toEqual(["digest.key", "ledger.key", "ledger.pub"]);
  for (const name of readdirSync(folder)) expect(statSync(path(name)).mode & 0o777, name).toBe(0o600);
  expect(second.digestKey).toEqual(first.digestKey);
  expect(second.head).toMatchObject({ publicKey: first.head.publicKey, keyId: first.head.keyId });
  expect(first.head.keyId).toMatch(/^[0-9a-f]{16}$/);
  expect(second.head.isSigned("host", head, first.head.sign("host", head))).toBe(true);
});

test("a signature is of one ledger, one number of rows, one head and one key", () => {
  const { head: key } = openKeys(folder, uid);
  const signature = key.sign("host", head);
  const other = mkdtempSync(join(tmpdir(), "capsem-keys-"));
  const stranger = openKeys(other, uid).head;
  rmSync(other, { recursive: true });
  expect(key.isSigned("vm_aaaaaaaaaaaaaaaa", head, signature)).toBe(false);
  expect(key.isSigned("host", { ...head, rows: 8 }, signature)).toBe(false);
  expect(key.isSigned("host", { ...head, head: "ac" }, signature)).toBe(false);
  expect(key.isSigned("host", head, "")).toBe(false);
  expect(stranger.isSigned("host", head, signature)).toBe(false);
});

test("a public half that is gone is written again from the private one", () => {
  openKeys(folder, uid);
  const before = readFileSync(path("ledger.pub"), "utf8");
  rmSync(path("ledger.pub"));
  openKeys(folder, uid);
  expect(readFileSync(path("ledger.pub"), "utf8")).toBe(before);
});

test.each<[string, RegExp, (name: (file: string) => string) => void]>([
  ["a private half that is gone", /it is gone.*put it back/, (at) => rmSync(at("ledger.key"))],
  ["a key that was cut", /it is no key/, (at) => writeFileSync(at("ledger.key"), "-----BEGIN")],
  ["an empty key", /it is no key/, (at) => writeFileSync(at("ledger.key"), "")],
  ["a public half of another key", /of another key/, (at) => writeFileSync(at("ledger.pub"), "x")],
  ["a key that others may read", /chmod 600/, (at) => chmodSync(at("ledger.key"), 0o640)],
  ["a digest key that others may read", /chmod 600/, (at) => chmodSync(at("digest.key"), 0o604)],
  ["a digest key that was cut", /it is no key/, (at) => writeFileSync(at("digest.key"), "abcd\n")],
  ["a digest key of other bytes", /it is no key/, (at) => writeFileSync(at("digest.key"), "ü".repeat(20))],
  ["a key with another name elsewhere", /another name/, (at) => linkSync(at("ledger.key"), at("copy"))],
  ["a key beyond every size", /too large/, (at) => writeFileSync(at("ledger.key"), "x".repeat(10_000))],
  [
    "a link in the place of a key",
    /Cannot use/,
    (at) => {
      rmSync(at("ledger.key"));
      symlinkSync(at("ledger.pub"), at("ledger.key"));
    },
  ],
  [
    "a folder in the place of a key",
    /it is no file/,
    (at) => {
      rmSync(at("ledger.key"));
      mkdirSync(at("ledger.key"), { mode: 0o700 });
    },
  ],
])("%s keeps the service from starting", (_name, words, damage) => {
  openKeys(folder, uid);
  damage(path);
  expect(refusal()).toMatch(words);
});

test("a key of another kind is refused", async () => {
  openKeys(folder, uid);
  const { generateKeyPairSync } = await import("node:crypto");
  const { privateKey } = generateKeyPairSync("x25519");
  writeFileSync(path("ledger.key"), privateKey.export({ type: "pkcs8", format: "pem" }));
  expect(refusal()).toContain("a key of another kind");
});

test("a key of another user is refused", () => {
  openKeys(folder, uid);
  expect(() => openKeys(folder, uid + 1)).toThrow(/belongs to user/);
});

test("what an interrupted start left is no obstacle", () => {
  writeFileSync(path("ledger.key.tmp"), "half");
  openKeys(folder, uid);
  expect(readdirSync(folder)).toHaveLength(3);
});
