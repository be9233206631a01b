import { readFileSync } from "node:fs";
import type { PolicyEdit } from "@capsem/policy";
import { expect, test } from "vitest";
import { FakeLedger } from "../testing/fake-ledger.ts";
import { errorOf, useRigs } from "../testing/use-rigs.ts";
import { refuseSecrets } from "./clear-text.ts";
import { SecretRedactor } from "./redactor.ts";

const rigWith = useRigs();
const SECRET = 'canary-"44\\d2 in a rule';
const REF = `credential:blake3:${"ab".repeat(32)}`;
const redactor = new SecretRedactor();
redactor.add(REF, SECRET);
const named = { redactor, credentials: { list: () => [{ ref: REF, name: "deploy" } as never] } };

const inRule = (match: string): PolicyEdit => ({
  kind: "put_rule",
  id: "profiles.rules.mine",
  fields: { action: "block", match, reason: "why" },
});

test.each<{ how: string; edit: PolicyEdit }>([
  { how: "as a word of a condition", edit: inRule(`process.command.contains(${JSON.stringify(SECRET)})`) },
  { how: "in base64", edit: inRule(`process.command.contains("${Buffer.from(SECRET).toString("base64")}")`) },
  {
    how: "in lines",
    edit: inRule(`process.command == "${Buffer.from(SECRET).toString("hex").replace(/.{9}/g, "$&\n")}"`),
  },
  {
    how: "as its reason",
    edit: {
      kind: "put_rule",
      id: "profiles.rules.a",
      fields: { action: "ask", match: "true", reason: SECRET },
    },
  },
  { how: "as a value", edit: { kind: "set", key: "profiles.rule_files", value: ["a.toml", SECRET] } },
])("a secret $how is refused by the name of its credential", ({ edit }) => {
  const fine = inRule("true");
  expect(() => refuseSecrets([fine, edit], named)).toThrow(
    'the text holds the secret of credential "deploy"; rules are stored in clear',
  );
  expect(() => refuseSecrets([fine, edit], { redactor, credentials: { list: () => [] } })).toThrow(
    "the secret of a credential that is being registered",
  );
  expect(() => refuseSecrets([fine, edit], { ...named, redactor: new SecretRedactor() })).not.toThrow();
});

test("what is taken away may always be, and a marker is no secret", () => {
  const edits: PolicyEdit[] = [
    { kind: "delete_rule", id: `profiles.rules.${SECRET}` },
    { kind: "reset", key: SECRET },
    inRule(`process.command.contains("[${REF}]")`),
  ];
  expect(() => refuseSecrets(edits, named)).not.toThrow();
});

test("a rule with a secret is stored while nobody registered it, and refused afterwards", async () => {
  const rig = await rigWith({ powers: { startLedger: new FakeLedger().startLedger } });
  const { client, layout } = rig;
  const body = { action: "block", match: `process.command.contains(${JSON.stringify(SECRET)})` };
  const stored = () => readFileSync(layout.settings, "utf8");
  const put = (name: string) => client.call("PUT", `/rules/profiles.rules.${name}`, { body });
  expect((await put("before")).status).toBe(200);
  expect(stored()).toContain("canary-");
  expect(
    (await client.post("/credentials/inject", { name: "deploy", hosts: [], secret: SECRET })).status,
  ).toBe(200);
  const refused = errorOf(await put("after"));
  expect(refused.kind).toBe("invalid_input");
  expect(refused.reason).toContain('credential "deploy"');
  expect(JSON.stringify(refused)).not.toContain("canary-");
  expect(stored()).not.toContain("rules.after");
  const set = { edits: [{ key: "profiles.rule_files", value: [SECRET] }] };
  expect(errorOf(await client.call("PATCH", "/settings/edit", { body: set })).reason).toContain("deploy");
  expect((await client.call("DELETE", "/rules/profiles.rules.before")).status).toBe(200);
  expect(stored()).not.toContain("canary-");
});
