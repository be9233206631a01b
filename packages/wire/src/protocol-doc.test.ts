import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { GUEST_MESSAGES, HOST_MESSAGES, RESERVED_NUMBERS } from "./message-table.ts";
import { withProtocolTables } from "./protocol-doc.ts";
import { tableText } from "./table-schema.ts";

const REFRESH = "stale: run `npx vitest run packages/wire -u` and review the difference";
const PAGE = new URL("../../../docs/protocol.md", import.meta.url);
const hash = createHash("sha256").update(tableText()).digest("hex").slice(0, 32);

test("the frozen table file is what the tables say", async () => {
  await expect(tableText(), REFRESH).toMatchFileSnapshot("./message-table.golden.json");
});

test("the table hash is that of the tables", async () => {
  const source = [
    "/** SHA-256 of the frozen table, cut to 32 digits. Written by `npx vitest run packages/wire -u`. */",
    `export const TABLE_HASH = "${hash}";`,
    "",
  ].join("\n");
  await expect(source, REFRESH).toMatchFileSnapshot("./table-hash.ts");
});

test("docs/protocol.md has the tables of the code", async () => {
  const page = readFileSync(PAGE, "utf8");
  await expect(withProtocolTables(page, hash), REFRESH).toMatchFileSnapshot(PAGE.pathname);
});

test("no message number is used twice", () => {
  const numbers = [...Object.values(HOST_MESSAGES), ...Object.values(GUEST_MESSAGES)].map((m) => m.number);
  const all = [...numbers, ...Object.keys(RESERVED_NUMBERS).map(Number)];
  expect(new Set(all).size).toBe(all.length);
});
