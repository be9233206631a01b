/** SHA-256 of the frozen table, cut to 32 digits. Written by `npx vitest run packages/wire -u`. */
export const TABLE_HASH = "fbd2a44f24d29fac6edd13666d072979";
