/** What carries out calls, loaded by the first one: in the product a bundle of its own. */
export { toolOf } from "@capsem/api";
export { callTool } from "./call-tool.ts";
export { gatewayCalls } from "./gateway-calls.ts";
