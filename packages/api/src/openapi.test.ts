import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { apiPage } from "./api-doc.ts";
import { openApiDocument } from "./openapi.ts";
import { ROUTES } from "./route-table.ts";

const REFRESH = "stale: run `npx vitest run packages/api -u` and review the difference";
const at = (name: string) => new URL(`../../../docs/${name}`, import.meta.url);

test("docs/openapi.json is what the route table says", async () => {
  const text = `${JSON.stringify(openApiDocument(), null, 2)}\n`;
  await expect(text, REFRESH).toMatchFileSnapshot(at("openapi.json").pathname);
});

test("docs/api.md has every route and error kind of the tables", async () => {
  await expect(apiPage(), REFRESH).toMatchFileSnapshot(at("api.md").pathname);
});

test("every reference of the document leads somewhere", () => {
  const document = JSON.parse(readFileSync(at("openapi.json"), "utf8"));
  const text = JSON.stringify(document);
  const wanted = [...text.matchAll(/"#\/components\/schemas\/(\w+)"/g)].map((match) => match[1] ?? "");
  expect(wanted.length).toBeGreaterThan(20);
  for (const name of wanted) expect(document.components.schemas).toHaveProperty(name);
  for (const name of Object.keys(document.components.schemas)) expect(wanted).toContain(name);
});

const ASKED_BY_POST: ReadonlySet<string> = new Set([
  "ruleEvaluate",
  "ruleReplay",
  "ruleLint",
  "corpValidate",
]);

test("every route says what it has on each side, or why not", () => {
  for (const [name, route] of Object.entries(ROUTES)) {
    for (const side of [route.tool, route.command]) {
      const text = typeof side === "string" ? side : side.none;
      expect(text.length, name).toBeGreaterThan(1);
    }
    // Some questions are too long for a query.
    if (route.method !== "GET") expect(route.mutates || ASKED_BY_POST.has(name), name).toBe(true);
  }
});
