// The processes of the product: one bundled file each, because start-up counts. One entry a line.
export const BUNDLES = [
  { name: "cli", entry: "apps/cli/src/main.ts" },
  { name: "service", entry: "apps/service/src/main.ts" },
  { name: "owner", entry: "apps/owner/src/main.ts" },
  { name: "image", entry: "apps/image/src/main.ts" },
  { name: "guest", entry: "apps/guest/src/main.ts" },
];

export const TOOLS = [{ name: "tidy", entry: "tools/tidy/main.ts" }];
