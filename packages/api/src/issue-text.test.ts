import { expect, test } from "vitest";
import * as z from "zod";
import { faultLine, parseOrFaults } from "./issue-text.ts";
import { ROUTES, type RouteName } from "./route-table.ts";
import { since } from "./service-schema.ts";

const line = (schema: z.ZodType, value: unknown, root?: string) => {
  const parsed = parseOrFaults(schema, value);
  if (parsed.kind === "value") throw new Error("the value was taken");
  return faultLine(parsed.faults, root);
};
const body = (route: "create" | "exec") => ROUTES[route].body;

test.each<[string, z.ZodType, unknown, string]>([
  ["a number over its limit", body("create"), { cpus: 65 }, "cpus: at most 64"],
  ["a number under its limit", body("create"), { cpus: 0 }, "cpus: at least 1"],
  [
    "a number that must be above a limit",
    body("exec"),
    { command: "x", timeout_secs: 0 },
    "timeout_secs: more than 0",
  ],
  ["text for a number", body("create"), { cpus: "2" }, "cpus: a number"],
  ["a fraction", body("create"), { cpus: 1.5 }, "cpus: a whole number"],
  ["a wrong step", body("create"), { memory_gib: 0.3 }, "memory_gib: in steps of 0.25"],
  ["a number for text", body("create"), { env: { A: 1 } }, "env.A: a text"],
  ["a list for an object", body("create"), { env: [] }, "env: an object"],
  ["too few characters", body("exec"), { command: "" }, "command: at least 1 character"],
  ["too few entries", body("exec"), { argv: [] }, "argv: at least 1 entry"],
  [
    "a word that is none of the choices",
    body("exec"),
    { command: "x", user: "eve" },
    "user: one of user, root",
  ],
  ["a missing text", ROUTES.rename.body, {}, "name: missing"],
  ["a missing choice", z.strictObject({ a: z.enum(["b", "c"]) }), {}, "a: missing"],
  ["a missing union", z.strictObject({ since }), {}, "since: missing"],
  [
    "words that the schema has",
    body("create"),
    { name: "A" },
    "name: a lower-case letter, then up to 62 of a-z, 0-9 and -",
  ],
  ["words of a refinement", body("exec"), {}, "exactly one of command and argv"],
  ["the first alternative of a union", since, "soon", "a span such as 30s, 10m, 2h or 7d, or an ISO time"],
  [
    "a name that is not known",
    body("create"),
    { colour: 1, size: 2 },
    "colour: there is no such argument; size: there is no such argument",
  ],
  ["text in a query that is no number", ROUTES.logs.query, { tail: "x" }, "tail: a number"],
  ["a part of a path", ROUTES.info.params, { id: "agent1" }, "id: vm_ and 16 characters of a-z2-7"],
  ["no object at all", body("create"), "x", "an object"],
])("%s is said plainly", (_, schema, value, text) => {
  expect(line(schema, value)).toBe(text);
});

test("a value that is right comes back parsed", () => {
  expect(parseOrFaults(ROUTES.logs.query, { tail: "5" })).toEqual({ kind: "value", value: { tail: 5 } });
});

test("many faults and long names are cut, and the root has its name where one is asked for", () => {
  const many = Object.fromEntries(Array.from({ length: 7 }, (_, at) => [`${at}${"n".repeat(100)}`, 1]));
  const text = line(z.strictObject({}), many);
  expect(text).toMatch(/; and 2 more$/);
  expect(text.length).toBeLessThan(500);
  expect(line(z.strictObject({}), [], "arguments")).toBe("arguments: an object");
});

/** Every wrong value that a schema's own limits make: none of the library's words may reach a user. */
test("no route answers with the schema library's own words", () => {
  const hostile = [undefined, null, 7, -1, 1e9, 0.1, Number.NaN, "", "x".repeat(100_000), [], {}, true];
  let seen = 0;
  for (const name of Object.keys(ROUTES) as RouteName[]) {
    const { params, query, body } = ROUTES[name] as {
      params?: z.ZodType;
      query?: z.ZodType;
      body?: z.ZodType;
    };
    for (const schema of [params, query, body]) {
      if (!(schema instanceof z.ZodObject)) continue;
      for (const key of Object.keys(schema.shape)) {
        for (const value of hostile) {
          const parsed = parseOrFaults(schema, { [key]: value });
          if (parsed.kind === "value") continue;
          seen += 1;
          expect(faultLine(parsed.faults), `${name} ${key}`).not.toMatch(
            /expected|received|invalid|Too |NaN|<=|>=/i,
          );
        }
      }
    }
  }
  expect(seen).toBeGreaterThan(200);
});
