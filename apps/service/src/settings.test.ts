import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import * as z from "zod";
import { TIMES, VM_LIMITS } from "./limits.ts";
import { settingsFile } from "./settings.ts";

const page = readFileSync(join(import.meta.dirname, "../../../docs/settings.md"), "utf8");

interface Field {
  readonly default?: unknown;
  readonly minimum?: number;
  readonly exclusiveMinimum?: number;
  readonly maximum?: number;
}

function rangeOf({ minimum, exclusiveMinimum, maximum }: Field): string {
  if (exclusiveMinimum !== undefined) return `above ${exclusiveMinimum}`;
  return minimum === undefined ? "" : `${minimum} to ${maximum}`;
}

test("docs/settings.md has every key of settings.json with its default and range", () => {
  const { properties = {} } = z.toJSONSchema(settingsFile, { io: "input" }) as {
    properties?: Record<string, Field>;
  };
  const [, table = ""] = /\| key \|[^\n]*\n[^\n]*\n([\s\S]*?)\n\n/.exec(page) ?? [];
  const rows = table.split("\n").map((line) => {
    const [, key = "", byDefault = "", range = ""] = line.split("|").map((cell) => cell.trim());
    return [key.replaceAll("`", ""), byDefault, range];
  });
  const keys = Object.entries(properties).map(([name, field]) => [
    name,
    String(field.default),
    rangeOf(field),
  ]);
  expect(keys.length).toBeGreaterThan(5);
  expect(rows.sort()).toEqual(keys.sort());
});

test("docs/settings.md has the limits as they are, and its example is good settings", () => {
  const gib = 1024 ** 3;
  expect(page).toContain(`every ${TIMES.sweepIntervalMs / 1000} seconds`);
  expect(page).toContain(`fill more than ${VM_LIMITS.diskAllocatedBytesMax / gib} GiB`);
  expect(page).toContain(`\`df\` shows ${VM_LIMITS.diskCapacityBytes / gib} GiB`);
  expect(page).toContain(`destroyed ${TIMES.failedKeptMs / 60_000} minutes later`);
  expect(VM_LIMITS.diskFloorBytes).toBe(2 * gib);
  const example = /```json\n([\s\S]*?)```/.exec(page)?.[1] ?? "";
  expect(settingsFile.safeParse(JSON.parse(example)).success).toBe(true);
});
