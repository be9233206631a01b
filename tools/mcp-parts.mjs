// capsem-mcp is two programs: one that answers the first exchange, and one with the tools and the SDK, which the first
// one loads when a client asks for a tool.
import { evaluated } from "./evaluated.mjs";

/** The first program finds the second one beside it, and has the list of tools as text: making it takes all schemas. */
export const callsApart = {
  name: "calls apart",
  setup({ onResolve, onLoad }) {
    onResolve({ filter: /\/calls\.ts$/ }, () => ({ path: "./mcp-calls.cjs", external: true }));
    onLoad({ filter: /\/apps\/mcp\/src\/tool-list\.ts$/ }, async ({ path }) => {
      const list = JSON.stringify((await evaluated(path)).listTools());
      return { contents: `export const listTools = () => JSON.parse(${JSON.stringify(list)});` };
    });
  },
};

/** A tool call needs no WebSocket. The SDK loads it on demand, and esbuild would wrap all that is behind it for that. */
export const withoutSockets = {
  name: "without sockets",
  setup({ onResolve, onLoad }) {
    onResolve({ filter: /\/node-socket\.ts$/ }, () => ({ path: "node-socket", namespace: "absent" }));
    onLoad({ filter: /./, namespace: "absent" }, () => ({
      contents: `export function openWebSocket() { throw new Error("Cannot open a WebSocket: it is not in this program"); }`,
    }));
  },
};
