import type { Client } from "@capsem/sdk";
import { expect, test } from "vitest";
import type { Args } from "../args.ts";
import type { Context } from "../context.ts";
import { fakePowers } from "../testing/fake-powers.ts";
import { list } from "./rules.ts";

const fault = (file: string, message: string) => ({
  ...{ file, subject: null, code: "syntax", message, line: 3, column: 7, source: "user" as const },
});
const RULES = { preset: "developer", digest: "0".repeat(64), rules: [], posture: {}, findings: [] };

async function listed(user: readonly object[], corp: readonly object[]): Promise<string> {
  const { powers, output, text } = fakePowers();
  const client = {
    rules: { list: async () => RULES },
    settings: { info: async () => ({ file: "settings.toml", settings: [], faults: user }) },
    corp: { info: async () => ({ faults: corp }) },
  } as unknown as Client;
  const context = { client: async () => client, output, powers, json: false } as unknown as Context;
  const args = { flag: () => false } as unknown as Args;
  expect(await list(context, args)).toBe(0);
  return text();
}

test("rules list says which file cannot be used, and that what it lists was in force before", async () => {
  const broken = fault("settings.toml", "a key is needed");
  const text = await listed([broken], [broken, fault("corp.toml", "no such table")]);
  expect(text.match(/a key is needed/g)).toHaveLength(1);
  expect(text).toMatch(/settings\.toml:3:7: .*a key is needed/);
  expect(text).toMatch(/corp\.toml:3:7: .*no such table/);
  expect(text).toContain("what was in force before still is: mend the file, then capsem corp reload");
});

test("where every file can be used, nothing is said of it", async () => {
  expect(await listed([], [])).not.toContain("corp reload");
});
