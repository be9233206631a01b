/** Who may import whom (ARCHITECTURE.md). Tests, and `testing`, are free to import anything. */
export const LAYERS: Readonly<Record<string, readonly string[]>> = {
  "packages/base": [],
  "packages/wire": ["base"],
  "packages/api": ["base"],
  "packages/policy": ["base"],
  "packages/rpc": ["base", "wire"],
  "packages/native": ["base"],
  "packages/jail": ["base", "native"],
  "packages/vmm": ["base"],
  "packages/ledger": ["base", "api"],
  "packages/sdk": ["base", "api"],
  "apps/guest": ["base", "wire", "rpc"],
  "apps/owner": ["base", "wire", "rpc", "api", "native", "jail", "vmm"],
  "apps/service": ["base", "wire", "rpc", "api", "policy", "native", "jail", "vmm"],
  "apps/ledger": ["base", "wire", "rpc", "api", "native", "jail", "ledger"],
  "apps/gateway": ["base", "api", "native", "jail"],
  "apps/image": ["base", "vmm"],
  "apps/mcp": ["base", "api", "sdk"],
  "apps/cli": ["base", "api", "sdk"],
  "guest-image/helper": [],
  "tools/tidy": [],
};

/** Third-party packages: the one file that may import each. The schema library is free. */
export const IMPORTERS: Readonly<Record<string, readonly string[]>> = {
  "@marcbachmann/cel-js": ["packages/policy/src/cel/parse.ts"],
  "@modelcontextprotocol/server": ["apps/mcp/src/mcp-sdk.ts"],
  "@msgpack/msgpack": ["packages/wire/src/msgpack.ts"],
  "@noble/hashes": ["apps/service/src/credential/reference.ts"],
  "@photostructure/sqlite": ["packages/ledger/src/sqlite.ts"],
  re2js: ["packages/policy/src/cel/pattern.ts"],
  "toml-eslint-parser": ["packages/policy/src/toml.ts"],
  ws: ["packages/sdk/src/node-socket.ts", "apps/service/src/websocket.ts"],
};
export const FREE_PACKAGES: readonly string[] = ["zod", "vitest", "vitest/config", "esbuild"];
