import { expect, test } from "vitest";
import { checkImporters, checkLayers, checkPatterns, checkSizes } from "./checks.ts";
import type { Source } from "./sources.ts";

const file = (path: string, text: string): Source => ({
  path,
  text,
  lines: text.split("\n").length,
  test: false,
});

test("an import that points up the layer table is a fault", () => {
  expect(checkLayers([file("packages/wire/src/a.ts", 'import { x } from "@capsem/rpc";\n')])).toHaveLength(1);
  expect(checkLayers([file("packages/rpc/src/a.ts", 'import type { x } from "@capsem/wire";\n')])).toEqual(
    [],
  );
});

test("an import that leaves its package by a path is a fault", () => {
  expect(
    checkLayers([file("packages/wire/src/a.ts", 'import { x } from "../../rpc/src/b.ts";\n')]),
  ).toHaveLength(1);
  expect(checkLayers([file("apps/cli/src/tree/a.ts", 'import { x } from "../b.ts";\n')])).toEqual([]);
});

test("a third-party package outside its one file is a fault", () => {
  expect(checkImporters([file("apps/cli/src/a.ts", 'import WebSocket from "ws";\n')])).toHaveLength(1);
  expect(checkImporters([file("apps/cli/src/a.ts", 'import { z } from "zod";\n')])).toEqual([]);
});

test("a file over the limit and a forbidden pattern are faults", () => {
  expect(checkSizes([file("a.ts", "x\n".repeat(501))])).toHaveLength(1);
  expect(
    checkPatterns([file("a.ts", `const x = y ${"as"} any;`), file("b.ts", `try { f(); } catch ${"{}"}`)]),
  ).toHaveLength(2);
});
