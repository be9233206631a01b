import { expect, test } from "vitest";
import * as root from "./index.ts";
import * as node from "./node.ts";

test("what the package exports is pinned", () => {
  expect(Object.keys(root).sort()).toEqual([
    "CapsemError",
    "Dirent",
    "Stats",
    "createClient",
    "gatewayTransport",
    "operation",
    "sh",
  ]);
  expect(Object.keys(node).sort()).toEqual([
    "CapsemError",
    "Dirent",
    "Stats",
    "connectUnix",
    "createClient",
    "createNodeClient",
    "nodeGatewayTransport",
    "nodeTransport",
    "operation",
    "sh",
    "socketPathOf",
  ]);
});
