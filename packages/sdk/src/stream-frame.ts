import type { StreamClientMessage, StreamServerMessage } from "@capsem/api";
import { textOf, utf8 } from "@capsem/base";
import { CapsemError, isRecord } from "./error.ts";
import { STREAM_FRAME_BYTES_MAX } from "./limits.ts";

/** First byte of a frame of capsem.stream.v1 (wire spec, "Stream protocol for clients"). */
const STDIN = 0;
const STDOUT = 1;
const STDERR = 2;
const CLIENT_JSON = 3;
const SERVER_JSON = 4;

export type ServerFrame =
  | { readonly kind: "output"; readonly stream: "stdout" | "stderr"; readonly data: Uint8Array }
  | { readonly kind: "message"; readonly message: StreamServerMessage };

export function encodeStdin(data: Uint8Array): Uint8Array {
  return encode(STDIN, data);
}

export function encodeMessage(message: StreamClientMessage): Uint8Array {
  const json = utf8(JSON.stringify(message));
  if (json.length + 1 > STREAM_FRAME_BYTES_MAX)
    throw new CapsemError(
      "too_large",
      `Cannot send ${message.type}: its frame is ${json.length + 1} bytes, limit ${STREAM_FRAME_BYTES_MAX}`,
    );
  return encode(CLIENT_JSON, json);
}

/** `data` of an output frame is a view into `frame`. */
export function decodeServerFrame(frame: Uint8Array): ServerFrame {
  const type = frame[0];
  if (frame.length > STREAM_FRAME_BYTES_MAX) throw broken("a frame is over the limit");
  switch (type) {
    case STDOUT:
      return { kind: "output", stream: "stdout", data: frame.subarray(1) };
    case STDERR:
      return { kind: "output", stream: "stderr", data: frame.subarray(1) };
    case SERVER_JSON:
      return { kind: "message", message: parseServerMessage(textOf(frame.subarray(1))) };
    default:
      throw broken(type === undefined ? "a frame is empty" : `a frame has type ${type}`);
  }
}

function parseServerMessage(text: string): StreamServerMessage {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (cause) {
    throw broken("a message is not JSON", cause);
  }
  const type = isRecord(value) ? value.type : undefined;
  if (type !== "started" && type !== "exit" && type !== "error")
    throw broken("a message has an unknown type");
  return value as StreamServerMessage;
}

function encode(type: number, data: Uint8Array): Uint8Array {
  const frame = new Uint8Array(data.length + 1);
  frame[0] = type;
  frame.set(data, 1);
  return frame;
}

function broken(what: string, cause?: unknown): CapsemError {
  return new CapsemError("internal", `Cannot read job stream: ${what}`, { cause });
}
