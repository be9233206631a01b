import { randomBytes } from "node:crypto";
import { chmodSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { credentialInfo } from "@capsem/api";
import { defer, Failure } from "@capsem/base";
import { afterEach, beforeEach, expect, test } from "vitest";
import type { ActDraft, Boundary } from "../boundary/parts.ts";
import { actContextOf } from "../testing/act-context.ts";
import { CredentialBook } from "./credential-book.ts";
import { CREDENTIAL_LIMITS } from "./limits.ts";
import { SecretRedactor } from "./redactor.ts";

const SECRET = "canary-5d1f-do-not-store";
const context = actContextOf();

let folder = "";
let passed: { draft: ActDraft; added: unknown[]; outcome: string }[] = [];
let redactor = new SecretRedactor();
let gate: Boundary["pass"];
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "capsem-credentials-"));
  passed = [];
  redactor = new SecretRedactor();
  gate = async (_context, draft, work) => {
    const act = { draft, added: [] as unknown[], outcome: "begun" };
    passed.push(act);
    try {
      const value = await work({ add: (facts: unknown) => act.added.push(facts) } as never);
      act.outcome = "done";
      return value;
    } catch (thrown) {
      act.outcome = "failed";
      throw thrown;
    }
  };
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

function open(): Promise<CredentialBook> {
  return CredentialBook.open({
    folder,
    redactor,
    boundary: { pass: (...given) => gate(...given) },
    policyDigest: () => "digest",
    nowMs: () => 1_700_000_000_000,
    random: (bytes) => randomBytes(bytes),
  });
}

const failing = (kind: string) => expect.objectContaining({ kind });

test("a registered secret is replaced from then on, and its act says all but the secret", async () => {
  const book = await open();
  // The attack: what nobody registered is stored as it is.
  expect(redactor.text(SECRET).text).toBe(SECRET);
  const info = await book.inject({ name: "openai", secret: SECRET, hosts: ["API.example.com"] }, context);
  expect(credentialInfo.parse(info)).toMatchObject({
    name: "openai",
    hosts: ["api.example.com"],
    keep: "memory",
  });
  expect(redactor.text(`x${SECRET}`).text).toBe(`x[${info.ref}]`);
  expect(book.list()).toEqual([info]);
  expect(passed).toMatchObject([
    {
      draft: {
        type: "settings.change",
        vm: null,
        fields: { "settings.key": "credentials.openai", "settings.source": "user" },
        row: {
          table: "policy_mutations",
          facts: { key: "credentials.openai", before: null, digest_before: "digest" },
        },
      },
      added: [{ digest_after: "digest" }],
      outcome: "done",
    },
  ]);
  await book.delete(info.ref, context);
  expect(book.list()).toEqual([]);
  expect(redactor.isEmpty).toBe(true);
  expect(passed[1]?.draft.row.facts).toMatchObject({
    before: expect.stringContaining(info.ref),
    after: null,
  });
  expect(JSON.stringify(passed)).not.toContain(SECRET);
});

test("of memory nothing is on the disk, and of a file one of this user's alone outlives the service", async () => {
  const book = await open();
  await book.inject({ name: "gone", secret: `${SECRET}-memory`, hosts: [] }, context);
  const kept = await book.inject({ name: "kept", secret: SECRET, hosts: ["a.com"], keep: "file" }, context);
  const files = readdirSync(folder).sort();
  expect(files).toEqual([`${kept.ref.slice(18)}.json`, "reference.key"].sort());
  for (const file of files) expect(statSync(join(folder, file)).mode & 0o777).toBe(0o600);
  expect(files.map((file) => readFileSync(join(folder, file), "utf8")).join("")).not.toContain("-memory");
  redactor = new SecretRedactor();
  const again = await open();
  expect(again.list()).toEqual([kept]);
  expect(redactor.text(SECRET).text).toBe(`[${kept.ref}]`);
  await again.delete(kept.ref, context);
  expect(readdirSync(folder)).toEqual(["reference.key"]);
});

test("a reference depends on name, hosts, secret and installation, and on the order of nothing", async () => {
  const book = await open();
  const refOf = async (name: string, hosts: string[], secret = SECRET) => {
    const { ref } = await book.inject({ name, secret, hosts }, context);
    await book.delete(ref, context);
    return ref;
  };
  const one = await refOf("a", ["a.com", "b.com"]);
  expect(await refOf("a", ["b.com", "A.com"])).toBe(one);
  const others = [
    await refOf("b", ["a.com", "b.com"]),
    await refOf("a", ["a.com"]),
    await refOf("a", ["a.com", "b.com"], `${SECRET}!`),
  ];
  rmSync(join(folder, "reference.key"));
  const elsewhere = await (await open()).inject(
    { name: "a", secret: SECRET, hosts: ["a.com", "b.com"] },
    context,
  );
  expect(new Set([one, ...others, elsewhere.ref]).size).toBe(5);
});

test("a name is taken until it is deleted, also while a person is asked", async () => {
  const book = await open();
  const pass = gate;
  const asked = defer<void>();
  gate = async (...given) => {
    await asked.promise;
    return pass(...given);
  };
  const first = book.inject({ name: "a", secret: SECRET, hosts: [] }, context);
  // Replaced before anything about it is stored.
  expect(redactor.text(SECRET).isRedacted).toBe(true);
  await expect(book.inject({ name: "a", secret: `${SECRET}2`, hosts: [] }, context)).rejects.toEqual(
    failing("name_taken"),
  );
  asked.resolve();
  const { ref } = await first;
  await expect(book.inject({ name: "a", secret: SECRET, hosts: [] }, context)).rejects.toEqual(
    failing("name_taken"),
  );
  // A refused double does not take the redaction of the first away.
  expect(redactor.text(SECRET).isRedacted).toBe(true);
  const both = await Promise.allSettled([book.delete(ref, context), book.delete(ref, context)]);
  expect(both.map(({ status }) => status).sort()).toEqual(["fulfilled", "rejected"]);
  expect((await book.inject({ name: "a", secret: SECRET, hosts: [] }, context)).ref).toBe(ref);
});

test("what a rule refuses is not registered, and its secret is forgotten", async () => {
  const book = await open();
  gate = async () => {
    throw new Failure("policy", "Cannot change settings: a rule");
  };
  await expect(book.inject({ name: "a", secret: SECRET, hosts: [], keep: "file" }, context)).rejects.toEqual(
    failing("policy"),
  );
  expect([book.list(), readdirSync(folder), redactor.isEmpty]).toEqual([[], ["reference.key"], true]);
});

test("a disk that does not take the file registers nothing", async () => {
  const book = await open();
  rmSync(folder, { recursive: true });
  await expect(book.inject({ name: "a", secret: SECRET, hosts: [], keep: "file" }, context)).rejects.toThrow(
    "ENOENT",
  );
  expect([book.list(), redactor.isEmpty, passed[0]?.outcome]).toEqual([[], true, "failed"]);
});

test.each([
  { what: "space around too little", secret: "   abc12     " },
  { what: "half a character", secret: "abcdefgh\ud800" },
  { what: "what redaction writes", secret: "[credential:" },
  { what: "what two markers are", secret: "f][creden" },
  { what: "a reference", secret: `credential:blake3:${"0".repeat(64)}` },
])("a secret that is $what is refused without a word of it", async ({ secret }) => {
  const book = await open();
  const refused = await book
    .inject({ name: "a", secret, hosts: [] }, context)
    .catch((thrown: unknown) => thrown);
  expect(refused).toEqual(failing("invalid_input"));
  expect(String(refused)).not.toContain(secret.trim());
  expect([passed, redactor.isEmpty]).toEqual([[], true]);
});

test("there is a limit to how many there are and how long they are together", async () => {
  const book = await open();
  const longest = 16_384;
  const names = Array.from({ length: CREDENTIAL_LIMITS.countMax }, (_, at) => `n${at}`);
  for (const name of names.slice(0, CREDENTIAL_LIMITS.secretCharactersTotalMax / longest)) {
    await book.inject({ name, secret: name.padEnd(longest, "x"), hosts: [] }, context);
  }
  await expect(book.inject({ name: "more", secret: SECRET, hosts: [] }, context)).rejects.toEqual(
    failing("quota"),
  );
  for (const { ref } of book.list()) await book.delete(ref, context);
  for (const name of names) await book.inject({ name, secret: `${name}-${SECRET}`, hosts: [] }, context);
  await expect(book.inject({ name: "more", secret: SECRET, hosts: [] }, context)).rejects.toEqual(
    failing("quota"),
  );
});

test.each([
  { what: "is no JSON", spoil: (path: string) => writeFileSync(path, SECRET) },
  {
    what: "has another secret",
    spoil: (path: string) => writeFileSync(path, readFileSync(path, "utf8").replace("canary", "kanary")),
  },
  {
    what: "has more in it",
    spoil: (path: string) => writeFileSync(path, readFileSync(path, "utf8").replace("{", '{"x":1,')),
  },
  {
    what: "cannot be opened",
    spoil: (path: string) => {
      rmSync(path);
      writeFileSync(path, Buffer.alloc(5 * 1024 ** 2));
    },
  },
])("a service does not start beside a credential file that $what, and says what to do", async ({ spoil }) => {
  const { ref } = await (await open()).inject(
    { name: "a", secret: SECRET, hosts: [], keep: "file" },
    context,
  );
  const path = join(folder, `${ref.slice(18)}.json`);
  spoil(path);
  const refused = await open().catch((thrown: unknown) => thrown);
  expect(refused).toEqual(failing("credential_unreadable"));
  expect(String(refused)).toMatch(/remove it and inject the credential again$/);
  expect(String(refused)).not.toContain("anary-5d1f");
  rmSync(path);
  expect((await open()).list()).toEqual([]);
});

test("a key that is missing or none is said, and a leftover of a writer is taken away", async () => {
  const book = await open();
  await book.inject({ name: "a", secret: SECRET, hosts: [], keep: "file" }, context);
  writeFileSync(join(folder, "x.json.tmp"), SECRET);
  await open();
  expect(readdirSync(folder)).not.toContain("x.json.tmp");
  const key = join(folder, "reference.key");
  for (const text of ["", "zz", "00".repeat(31)]) {
    chmodSync(key, 0o600);
    writeFileSync(key, text);
    await expect(open()).rejects.toEqual(failing("credential_unreadable"));
  }
  rmSync(key);
  await expect(open()).rejects.toThrow("1 credential files were made with it");
});
