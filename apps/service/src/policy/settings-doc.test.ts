import { readFileSync } from "node:fs";
import { join } from "node:path";
import {
  POLICY_LIMITS,
  parseLayer,
  RESERVED_SERVERS,
  SERVER_KEYS,
  SETTING_KEYS,
  SETTINGS,
  USUAL_SERVER,
} from "@capsem/policy";
import { expect, test } from "vitest";
import { TIMES, VM_LIMITS } from "../limits.ts";
import { faultInfo, faultLine } from "./faults.ts";
import { takesOf } from "./infos.ts";

const path = join(import.meta.dirname, "../../../../docs/settings.md");
const page = readFileSync(path, "utf8");

const blocks = (language: string) =>
  [...page.matchAll(new RegExp(`^\`\`\`${language}\\n([\\s\\S]*?)^\`\`\``, "gm"))].map(
    ([, block = ""]) => block,
  );

test("docs/settings.md has every setting with its default, what it takes and what it is", () => {
  const [, table = ""] = /\| key \|[^\n]*\n[^\n]*\n((?:\|[^\n]*\n)+)/.exec(page) ?? [];
  const rows = SETTING_KEYS.map((key) => {
    const corp = "isCorpOnly" in SETTINGS[key] ? "; in `corp.toml` only" : "";
    return `| \`${key}\` | \`${JSON.stringify(SETTINGS[key].usual)}\` | ${takesOf(key)} | ${SETTINGS[key].doc}${corp} |\n`;
  });
  expect(table).toBe(rows.join(""));
});

test("its examples are good settings, and the fault that it shows is what is said", () => {
  const layers = blocks("toml").map((text) => parseLayer(text.includes("[corp.") ? "corp" : "user", text));
  expect(layers.map(({ kind }) => kind)).toEqual(["ok", "ok", "ok"]);
  const faulty = parseLayer("user", "[limits]\nrunning_max = 1000\n");
  const lines =
    faulty.kind === "ok" ? [] : faulty.faults.map((fault) => faultLine(faultInfo(fault, "settings.toml")));
  expect(blocks("text")).toEqual([`${lines.join("\n")}\n`]);
});

test("it has every key of a tool server, with what holds without it", () => {
  const [, table = ""] = /\| key of a server \|[^\n]*\n[^\n]*\n((?:\|[^\n]*\n)+)/.exec(page) ?? [];
  const rows = table.split("\n").filter((row) => row !== "");
  const cells = rows.map((row) => row.split("|").map((cell) => cell.trim().replaceAll("`", "")));
  expect(cells.map(([, key]) => key)).toEqual([...SERVER_KEYS]);
  const usual = new Map(cells.map(([, key, value]) => [key, value]));
  const { transport, protocol, isEnabled, grants, timeoutSecs } = USUAL_SERVER;
  expect(usual.get("transport")).toBe(JSON.stringify(transport));
  expect(usual.get("protocol")).toBe(JSON.stringify(protocol));
  expect(usual.get("enabled")).toBe(String(isEnabled));
  expect(usual.get("grants")).toBe(JSON.stringify(grants));
  expect(usual.get("timeout_secs")).toBe(String(timeoutSecs));
  for (const name of RESERVED_SERVERS) expect(page).toContain(`\`${name}\``);
  expect(page).toContain(`at most ${POLICY_LIMITS.serverNameCharsMax} characters`);
  expect(page).toContain(`at most ${POLICY_LIMITS.serversMax} servers`);
  expect(page).toContain(`at most ${POLICY_LIMITS.grantsMax} texts HOST:PORT`);
  expect(page).toContain(`at most ${POLICY_LIMITS.serverHeadersMax} texts`);
});

test("it has the limits as they are", () => {
  const gib = 1024 ** 3;
  expect(page).toContain(`every ${TIMES.sweepIntervalMs / 1000} seconds`);
  expect(page).toContain(`fill more than ${VM_LIMITS.diskAllocatedBytesMax / gib} GiB`);
  expect(page).toContain(`\`df\` shows ${VM_LIMITS.diskCapacityBytes / gib} GiB`);
  expect(page).toContain(`destroyed ${TIMES.failedKeptMs / 60_000} minutes later`);
  expect(page).toContain(`at most ${POLICY_LIMITS.fileBytesMax / 1024} KiB`);
  expect(VM_LIMITS.diskFloorBytes).toBe(2 * gib);
});
