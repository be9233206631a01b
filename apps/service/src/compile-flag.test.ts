import { execFileSync } from "node:child_process";
import { expect, test } from "vitest";
import { COMPILE_FLAG } from "./compile-flag.ts";

test("this Node knows the flag, and its own number is a fourth", () => {
  const [name = "", value] = COMPILE_FLAG.split("=");
  const options = execFileSync(process.execPath, ["--v8-options"], { encoding: "utf8" });
  const [, usual] = new RegExp(`^  ${name} .*\\n.*default: ${name}=(\\d+)$`, "m").exec(options) ?? [];
  expect(Number(value)).toBe(Number(usual) * 4);
});
