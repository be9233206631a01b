import { expect, test } from "vitest";
import { snapshotOf } from "../../../../packages/policy/src/testing/policies.ts";
import { isOutputHeld } from "./output-rules.ts";

test.each<[action: string, match: string, isHeld: boolean]>([
  ["block", 'process.exec.stdout.contains("KEY")', true],
  ["block", 'process.exec.stderr.contains("KEY")', true],
  ["ask", 'has(process.exec.stdout) && vm.name == "x"', true],
  ["block", 'has(process.exec) && vm.name == "x"', true],
  ["block", "process.truncated", true],
  // What only reads it may fault, and a fault blocks.
  ["allow", 'process.exec.stdout.contains("KEY")', true],
  ["block", 'event.type == "process.exec_complete"', true],
  ["block", "process.exec.exit_code != 0", true],
  ["ask", 'event.type in ["process.exec", "process.exec_complete"] && has(process.exec.exit_code)', true],
  // The start of the command has been judged by the same words.
  ["block", 'process.command.contains("rm")', false],
  ["ask", 'process.exec.user == "root"', false],
  ["block", 'vm.name == "x"', false],
  ["allow", "process.exec.exit_code != 0", false],
  ["block", 'file.import.ext == "exe"', false],
])("with a rule that says %s where %s output is held: %s", (action, match, isHeld) => {
  const snapshot = snapshotOf(`[profiles.rules.guard]\naction = "${action}"\nmatch = '${match}'\n`);
  expect([isOutputHeld(snapshot), isOutputHeld(snapshot)]).toEqual([isHeld, isHeld]);
});

test("without rules, and where the only rule is switched off, nothing is held", () => {
  expect(isOutputHeld(snapshotOf(""))).toBe(false);
  const off = `[profiles.rules.guard]\naction = "block"\nmatch = 'process.exec.stdout != ""'\nenabled = false\n`;
  expect(isOutputHeld(snapshotOf(off))).toBe(false);
});
