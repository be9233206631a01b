import { Bug, concat, Failure } from "@capsem/base";
import type * as z from "zod";
import { createByteReader } from "./byte-reader.ts";
import { putU32 } from "./frame.ts";
import { WIRE_LIMITS } from "./limits.ts";
import { GUEST_MESSAGES, type GuestMessage, HOST_MESSAGES, type HostMessage } from "./message-table.ts";
import { decodeMessagePack, encodeMessagePack } from "./msgpack.ts";
import type { MuxStream } from "./types.ts";

type Table = Readonly<Record<string, { readonly number: number; readonly schema: z.ZodType }>>;

interface Message {
  readonly name: string;
  readonly body: unknown;
}

/**
 * The control messages of one side over one stream of port 5000: `[u32 length][MessagePack [number, body]]`.
 * Host code can send host messages and read guest messages only, and the other way round.
 */
export interface ControlPort<Out, In> {
  /**
   * Resolves when the message is handed over; order is kept. Throws Failure("bad_message" | "too_large") before
   * a byte is sent, and what the stream throws. `amend` may write into the encoded message, right before it is handed over.
   */
  send(message: Out, amend?: (encoded: Uint8Array) => void): Promise<void>;
  /**
   * Every message until the peer's end. A message that breaks the table resets the stream and throws
   * Failure("bad_message" | "too_large" | "truncated" | "unknown_message" | "wrong_direction"). One reader.
   */
  messages(): AsyncGenerator<In, void, undefined>;
  readonly stream: MuxStream;
}

export type HostControlPort = ControlPort<HostMessage, GuestMessage>;
export type GuestControlPort = ControlPort<GuestMessage, HostMessage>;

export function hostControlPort(stream: MuxStream): HostControlPort {
  return controlPort(stream, encodeHostMessage, decodeGuestMessage);
}

export function guestControlPort(stream: MuxStream): GuestControlPort {
  return controlPort(stream, encodeGuestMessage, decodeHostMessage);
}

export function encodeHostMessage(message: HostMessage): Uint8Array {
  return encodeWith(HOST_MESSAGES, message);
}

export function encodeGuestMessage(message: GuestMessage): Uint8Array {
  return encodeWith(GUEST_MESSAGES, message);
}

export function decodeHostMessage(bytes: Uint8Array): HostMessage {
  return decodeWith(HOST_NAMES, GUEST_NAMES, HOST_MESSAGES, bytes) as HostMessage;
}

export function decodeGuestMessage(bytes: Uint8Array): GuestMessage {
  return decodeWith(GUEST_NAMES, HOST_NAMES, GUEST_MESSAGES, bytes) as GuestMessage;
}

const HOST_NAMES = namesOf(HOST_MESSAGES);
const GUEST_NAMES = namesOf(GUEST_MESSAGES);

function controlPort<Out, In>(
  stream: MuxStream,
  encode: (message: Out) => Uint8Array,
  decode: (bytes: Uint8Array) => In,
): ControlPort<Out, In> {
  const reader = createByteReader(stream);
  return {
    stream,
    async send(message, amend) {
      const body = encode(message);
      const length = new Uint8Array(4);
      putU32(length, 0, body.length);
      const whole = concat([length, body]);
      amend?.(whole.subarray(4));
      await stream.write(whole);
    },
    async *messages() {
      try {
        for (;;) {
          const bytes = await reader.takeSized(WIRE_LIMITS.controlMessageBytesMax);
          if (bytes === null) return;
          yield decode(bytes);
        }
      } catch (thrown) {
        stream.reset("protocol_error");
        throw thrown;
      }
    },
  };
}

function encodeWith(table: Table, message: Message): Uint8Array {
  const entry = Object.hasOwn(table, message.name) ? table[message.name] : undefined;
  if (entry === undefined) throw new Bug(`message ${message.name} is not of this direction`);
  const parsed = entry.schema.safeParse(message.body);
  if (!parsed.success) {
    throw new Failure("bad_message", `Cannot send ${message.name}: ${firstIssue(parsed.error)}`);
  }
  const bytes = encodeMessagePack([entry.number, parsed.data]);
  if (bytes.length > WIRE_LIMITS.controlMessageBytesMax) {
    const limit = WIRE_LIMITS.controlMessageBytesMax;
    throw new Failure("too_large", `Cannot send ${message.name}: ${bytes.length} bytes, more than ${limit}`);
  }
  return bytes;
}

function decodeWith(
  names: ReadonlyMap<number, string>,
  otherNames: ReadonlyMap<number, string>,
  table: Table,
  bytes: Uint8Array,
): Message {
  if (bytes.length > WIRE_LIMITS.controlMessageBytesMax) {
    throw new Failure("too_large", `Cannot read message: ${bytes.length} bytes`);
  }
  const decoded = decodeMessagePack(bytes);
  if (!Array.isArray(decoded) || decoded.length !== 2) {
    throw new Failure("bad_message", "Cannot read message: it is not a pair of number and body");
  }
  const [number, body] = decoded as [unknown, unknown];
  if (typeof number !== "number") throw new Failure("bad_message", "Cannot read message: it has no number");
  const name = names.get(number);
  const entry = name === undefined ? undefined : table[name];
  if (name === undefined || entry === undefined) {
    const other = otherNames.get(number);
    if (other === undefined) {
      throw new Failure("unknown_message", `Cannot read message: no message has number ${number}`);
    }
    throw new Failure("wrong_direction", `Cannot read message: ${other} is sent by this side only`);
  }
  const parsed = entry.schema.safeParse(body);
  if (parsed.success) return { name, body: parsed.data };
  throw new Failure("bad_message", `Cannot read ${name}: ${firstIssue(parsed.error)}`);
}

/** Where and what, never the value: it may be a secret or a terminal escape. */
function firstIssue(error: z.ZodError): string {
  const issue = error.issues[0];
  if (issue === undefined) return "it has another shape";
  const place = issue.path.map((part) => String(part)).join(".");
  return `field "${place.replaceAll(/[^\w.-]/g, "?").slice(0, 64)}" is wrong (${issue.code})`;
}

function namesOf(table: Table): ReadonlyMap<number, string> {
  return new Map(Object.entries(table).map(([name, entry]) => [entry.number, name]));
}
