import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { VERSION } from "./version.ts";

test("the version is the package's", () => {
  const file = new URL("../package.json", import.meta.url);
  expect(VERSION).toBe((JSON.parse(readFileSync(file, "utf8")) as { version: string }).version);
});
