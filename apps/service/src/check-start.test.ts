import { mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { checkStart } from "./check-start.ts";

let home = "";
beforeEach(() => {
  home = mkdtempSync(join(tmpdir(), "capsem-check-"));
});
afterEach(() => rmSync(home, { recursive: true }));

async function check() {
  const said: string[] = [];
  const options = { home, machineCorp: join(home, "machine.toml"), uid: process.getuid?.() ?? -1 };
  return { code: await checkStart({ ...options, say: (line) => said.push(line) }), said: said.join() };
}

test("a home without settings may start", async () => {
  expect(await check()).toEqual({ code: 0, said: "" });
});

test("a fault is told with its place, and the home stays as it is", async () => {
  writeFileSync(join(home, "settings.toml"), "[limits]\npool_size = 99\n", { mode: 0o600 });
  const { code, said } = await check();
  expect(code).toBe(1);
  expect(said).toContain("settings.toml:2");
  expect(readdirSync(home)).toEqual(["settings.toml"]);
});
