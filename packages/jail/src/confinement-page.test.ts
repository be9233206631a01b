import { expect, test } from "vitest";
import { confinementPage } from "./confinement-page.ts";

const REFRESH = "stale: run `npx vitest run packages/jail -u` and review the difference";

test("docs/confinement.md is what the profiles say", async () => {
  const page = new URL("../../../docs/confinement.md", import.meta.url);
  await expect(confinementPage(), REFRESH).toMatchFileSnapshot(page.pathname);
});
