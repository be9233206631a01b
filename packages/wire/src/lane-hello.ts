import { Failure } from "@capsem/base";
import * as z from "zod";
import { encodeFrame, FRAME_TYPES } from "./frame.ts";
import { decodeMessagePack, encodeMessagePack } from "./msgpack.ts";

/** The wire generation. Frozen at 1 when the guest's tool path works end to end. */
export const WIRE_GENERATION = 1;

/**
 * The sync word of a control lane. Read as a length it is far above the largest frame, so at a frame boundary
 * it can be nothing else. Other lanes use 32 random bytes that the control hello named.
 */
export const CONTROL_MAGIC: Uint8Array = Uint8Array.from([
  0x89, 0x43, 0x41, 0x50, 0x53, 0x45, 0x4d, 0x20, 0x4c, 0x41, 0x4e, 0x45, 0x0d, 0x0a, 0x1a, 0x0a,
]);
export const MARKER_BYTES = 32;

const generation = z.number().int().min(1).max(0xffff_ffff);
const marker = z.custom<Uint8Array>((value) => value instanceof Uint8Array && value.length === MARKER_BYTES);
/** Read first, and loosely: a peer of another wire generation may have other fields beside these. */
const anyControl = z.looseObject({
  wire: z.number().int(),
  table: z.string().max(64),
  lane_generation: generation,
});
const hostControl = z.strictObject({
  wire: z.number().int(),
  table: z.string().max(64),
  lane_generation: generation,
  bulk_marker: marker,
  traffic_marker: marker,
});
const guestControl = z.strictObject({
  wire: z.number().int(),
  table: z.string().max(64),
  lane_generation: generation,
  agent_instance: z.string().regex(/^[0-9a-f]{16}$/),
});
const data = z.strictObject({ lane_generation: generation });

export type HostHello = z.infer<typeof hostControl>;
export type GuestHello = z.infer<typeof guestControl>;
export type DataHello = z.infer<typeof data>;

/** What both ends must agree on. */
export interface WireIdentity {
  readonly wire: number;
  /** Hash of the message table, hexadecimal. */
  readonly table: string;
}

export const parseHostHello = (payload: Uint8Array): HostHello | undefined => parse(hostControl, payload);
export const parseGuestHello = (payload: Uint8Array): GuestHello | undefined => parse(guestControl, payload);
export const parseDataHello = (payload: Uint8Array): DataHello | undefined => parse(data, payload);
export const parseAnyControlHello = (payload: Uint8Array): z.infer<typeof anyControl> | undefined =>
  parse(anyControl, payload);

/** The sync word and the hello frame behind it, as one buffer. */
export function encodeHello(word: Uint8Array, hello: HostHello | GuestHello | DataHello): Uint8Array {
  const frame = encodeFrame(FRAME_TYPES.hello, 0, encodeMessagePack(hello));
  const bytes = new Uint8Array(word.length + frame.length);
  bytes.set(word);
  bytes.set(frame, word.length);
  return bytes;
}

/** The failure of two ends that do not speak the same protocol, or undefined. */
export function mismatchOf(own: WireIdentity, peer: WireIdentity): Failure | undefined {
  if (own.wire === peer.wire && own.table === peer.table) return undefined;
  const here = `wire ${own.wire} table ${own.table}`;
  const there = `wire ${peer.wire} table ${peer.table.replaceAll(/[^ -~]/g, "?")}`;
  return new Failure("protocol_mismatch", `Cannot start lane: this end has ${here}, the other has ${there}`);
}

function parse<T>(schema: z.ZodType<T>, payload: Uint8Array): T | undefined {
  try {
    return schema.safeParse(decodeMessagePack(payload)).data;
  } catch (thrown) {
    if (thrown instanceof Failure) return undefined;
    throw thrown;
  }
}
