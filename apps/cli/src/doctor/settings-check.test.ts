import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { nodePowers } from "../powers-node.ts";
import { checkSettings } from "./settings-check.ts";

/** A service that says what a test wants it to. */
async function check(script: string | null) {
  const folder = mkdtempSync(join(tmpdir(), "check-"));
  try {
    if (script !== null) writeFileSync(join(folder, "service.cjs"), script);
    return await checkSettings({ ...nodePowers(), home: join(folder, "home"), programFolder: folder });
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

const said = (text: string, code: number) =>
  `process.stderr.write(${JSON.stringify(text)}); process.exitCode = ${code};`;

const ANSWERS: [string, string | null, object][] = [
  ["it would start", said("", 0), { kind: "good" }],
  [
    "it would not",
    said("capsem service: Cannot use the settings:\n  a.toml:1:2: one\n  corp.toml: two\n", 1),
    { kind: "refused", faults: ["a.toml:1:2: one", "corp.toml: two"] },
  ],
  [
    "one reason on one line",
    said('capsem service: Cannot read "settings.toml": others may write it\n', 1),
    { kind: "refused", faults: ['Cannot read "settings.toml": others may write it'] },
  ],
  ["one that knows no such question", said("TypeError: Unknown option '--check'\n", 1), { kind: "unknown" }],
  ["one that breaks", "throw new Error('x')", { kind: "unknown" }],
  ["one that ends without a word", said("", 1), { kind: "unknown" }],
  ["one that ends in another way", said("killed\n", 70), { kind: "unknown" }],
  ["none that is built", null, { kind: "unknown" }],
];
test.each(ANSWERS)("what the service says of its files is taken over: %s", async (_, script, found) => {
  expect(await check(script)).toMatchObject(found);
});
