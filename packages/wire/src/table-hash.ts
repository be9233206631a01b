/** SHA-256 of the frozen table, cut to 32 digits. Written by `npx vitest run packages/wire -u`. */
export const TABLE_HASH = "924269bfdd23f87e414495bffdbef4a8";
