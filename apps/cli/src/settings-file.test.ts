import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, test } from "vitest";
import { serversWith, settingOfFile } from "./settings-file.ts";

const home = mkdtempSync(join(tmpdir(), "settings-"));
afterAll(() => rmSync(home, { recursive: true, force: true }));

const KEY = "confinement.allow_unconfined";
test.each([
  ["[confinement]\nallow_unconfined = true\n", true],
  ["confinement.allow_unconfined = true # why\n", true],
  ["[limits]\npool_size = 1\n[confinement]\nallow_unconfined = false\n", false],
  ["[other]\nallow_unconfined = true\n", undefined],
  ["allow_unconfined = true\n", undefined],
  ["[confinement\n", undefined],
  ["", undefined],
])("%j says %j", (text, value) => {
  writeFileSync(join(home, "settings.toml"), text);
  expect(settingOfFile(home, KEY)).toBe(value);
});

const REF = `credential:blake3:${"ab".repeat(32)}`;
const header = `Authorization = "Bearer ${REF}"`;
test.each<[string, string[]]>([
  [`[mcp.servers.a]\nurl = "u"\nheaders = { ${header} }\n`, ["a"]],
  [`[mcp.servers.a]\nurl = "u"\n[mcp.servers.a.headers]\n${header}\nX = "${REF}"\n`, ["a"]],
  [`mcp.servers.b.headers.${header}\n[mcp.servers.a.headers]\n${header}\n`, ["b", "a"]],
  [`[mcp.servers.a.headers]\nAuthorization = "Bearer credential:blake3:${"cd".repeat(32)}"\n`, []],
  [`[mcp.servers.a]\nurl = "u" # ${REF}\n`, []],
  [`[profiles.rules.a]\nmatch = "x == '${REF}'"\n`, []],
  [`[mcp.servers.a\n${header}\n`, []],
])("%j has servers %j with the credential in a header", (text, names) => {
  writeFileSync(join(home, "settings.toml"), text);
  expect(serversWith(home, REF)).toEqual(names);
});

test("no file says nothing", () => {
  expect(serversWith(join(home, "none"), REF)).toEqual([]);
  expect(settingOfFile(join(home, "none"), KEY)).toBeUndefined();
});
