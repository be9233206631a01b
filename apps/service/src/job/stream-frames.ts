import { type StreamClientMessage, type StreamServerMessage, streamClient } from "@capsem/api";
import { Failure } from "@capsem/base";
import { STREAM_LIMITS } from "../limits.ts";
import type { Frame } from "./frame-socket.ts";

/** First byte of a frame of capsem.stream.v1 (wire spec, "Stream protocol for clients"). */
export const FRAME_KINDS = { stdin: 0, stdout: 1, stderr: 2, clientJson: 3, serverJson: 4 } as const;

export type ClientFrame =
  | { readonly kind: "stdin"; readonly bytes: Uint8Array }
  | { readonly kind: "message"; readonly message: StreamClientMessage };

/** The client broke the protocol: the socket is closed with this code. */
export class StreamViolation extends Failure<"stream_violation"> {
  readonly code: number;

  constructor(code: number, message: string) {
    super("stream_violation", message);
    this.code = code;
  }
}

export function parseClientFrame(frame: Frame): ClientFrame {
  if (!frame.isBinary) throw new StreamViolation(1003, "text frames are not taken");
  const [kind] = frame.bytes;
  if (kind === undefined) throw new StreamViolation(1002, "a frame is empty");
  if (frame.bytes.length > STREAM_LIMITS.frameBytesMax)
    throw new StreamViolation(1009, "a frame is too large");
  const body = frame.bytes.subarray(1);
  switch (kind) {
    case FRAME_KINDS.stdin:
      return { kind: "stdin", bytes: body };
    case FRAME_KINDS.clientJson:
      return { kind: "message", message: parseMessage(body) };
    case FRAME_KINDS.stdout:
    case FRAME_KINDS.stderr:
    case FRAME_KINDS.serverJson:
      throw new StreamViolation(1002, `frame kind ${kind} is not the client's to send`);
    default:
      throw new StreamViolation(1002, `frame kind ${kind} is unknown`);
  }
}

/** One piece of output, cut into frames. */
export function* outputFrames(kind: 1 | 2, bytes: Uint8Array): Generator<Uint8Array> {
  const room = STREAM_LIMITS.frameBytesMax - 1;
  for (let at = 0; at < bytes.length; at += room) {
    const part = bytes.subarray(at, at + room);
    const frame = new Uint8Array(part.length + 1);
    frame[0] = kind;
    frame.set(part, 1);
    yield frame;
  }
}

export function serverFrame(message: StreamServerMessage): Uint8Array {
  return Buffer.concat([Buffer.of(FRAME_KINDS.serverJson), Buffer.from(JSON.stringify(message))]);
}

function parseMessage(body: Uint8Array): StreamClientMessage {
  let value: unknown;
  try {
    value = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(body)) as unknown;
  } catch (thrown) {
    if (thrown instanceof SyntaxError || thrown instanceof TypeError) {
      throw new StreamViolation(1002, "a message is not JSON");
    }
    throw thrown;
  }
  const parsed = streamClient.safeParse(value);
  if (!parsed.success) throw new StreamViolation(1002, "a message has another shape");
  return parsed.data;
}
