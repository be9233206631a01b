import { expect, test } from "vitest";
import { ledgerFormatPage } from "./format-page.ts";

const REFRESH = "stale: run `npx vitest run packages/ledger -u` and review the difference";

test("docs/ledger-format.md is what the tables say", async () => {
  const page = new URL("../../../docs/ledger-format.md", import.meta.url);
  await expect(ledgerFormatPage(), REFRESH).toMatchFileSnapshot(page.pathname);
});
