import { expect, test } from "vitest";
import * as root from "./index.ts";
import * as node from "./node.ts";

test("what the package exports is pinned", () => {
  expect(Object.keys(root).sort()).toEqual(["CapsemError", "createClient", "operation"]);
  expect(Object.keys(node).sort()).toEqual([
    "connectUnix",
    "createNodeClient",
    "nodeTransport",
    "socketPathOf",
  ]);
});
