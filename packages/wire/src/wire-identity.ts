import { WIRE_GENERATION, type WireIdentity } from "./lane-hello.ts";
import { TABLE_HASH } from "./table-hash.ts";

/** What this build says of itself in a control hello. */
export const WIRE_IDENTITY: WireIdentity = { wire: WIRE_GENERATION, table: TABLE_HASH };
