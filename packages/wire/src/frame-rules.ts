import { FRAME_TYPES, PAYLOAD_BYTES_MAX } from "./frame.ts";
import { WIRE_LIMITS } from "./limits.ts";

interface FrameRule {
  readonly payloadBytesMin: number;
  readonly payloadBytesMax: number;
  /** Whether stream id 0, the lane itself, may be named. */
  readonly onLane: boolean;
}

const RULES: ReadonlyMap<number, FrameRule> = new Map([
  [FRAME_TYPES.open, { payloadBytesMin: 2, payloadBytesMax: 2 + WIRE_LIMITS.tagBytesMax, onLane: false }],
  [FRAME_TYPES.data, { payloadBytesMin: 1, payloadBytesMax: PAYLOAD_BYTES_MAX, onLane: false }],
  [FRAME_TYPES.window, { payloadBytesMin: 4, payloadBytesMax: 4, onLane: false }],
  [FRAME_TYPES.end, { payloadBytesMin: 0, payloadBytesMax: 0, onLane: false }],
  [
    FRAME_TYPES.reset,
    { payloadBytesMin: 1, payloadBytesMax: 1 + WIRE_LIMITS.resetTextBytesMax, onLane: true },
  ],
]);

/** The fault of a frame in an established lane, or undefined. A hello there is a fault. */
export function checkFrameHeader(type: number, id: number, payloadBytes: number): string | undefined {
  const rule = RULES.get(type);
  if (rule === undefined) return `a frame has type ${type}`;
  if (id === 0 && !rule.onLane) return `a frame of type ${type} names stream 0`;
  if (payloadBytes < rule.payloadBytesMin || payloadBytes > rule.payloadBytesMax) {
    return `a frame of type ${type} has ${payloadBytes} payload bytes`;
  }
  return undefined;
}
