/** SHA-256 of the frozen table, cut to 32 digits. Written by `npx vitest run packages/wire -u`. */
export const TABLE_HASH = "f1acd1688648ce22da8482daf1c2ed23";
