import { Failure } from "@capsem/base";
import { getU32 } from "./frame.ts";
import { WIRE_LIMITS } from "./limits.ts";

/** What the first byte of a value says about it. */
interface Shape {
  /** Bytes of the length or the number after the first byte. */
  readonly headBytes: number;
  readonly kind: "plain" | "bytes" | "string" | "array" | "map" | "integer64" | "refused";
}

const plain = (headBytes: number): Shape => ({ headBytes, kind: "plain" });
const REFUSED: Shape = { headBytes: 0, kind: "refused" };

/** 0xc0 to 0xdf, in order. Extension types (0xc7 to 0xc9, 0xd4 to 0xd8) and 0xc1 are refused. */
const SHAPES: readonly Shape[] = [
  plain(0),
  REFUSED,
  plain(0),
  plain(0),
  { headBytes: 1, kind: "bytes" },
  { headBytes: 2, kind: "bytes" },
  { headBytes: 4, kind: "bytes" },
  REFUSED,
  REFUSED,
  REFUSED,
  plain(4),
  plain(8),
  plain(1),
  plain(2),
  plain(4),
  { headBytes: 8, kind: "integer64" },
  plain(1),
  plain(2),
  plain(4),
  { headBytes: 8, kind: "integer64" },
  REFUSED,
  REFUSED,
  REFUSED,
  REFUSED,
  REFUSED,
  { headBytes: 1, kind: "string" },
  { headBytes: 2, kind: "string" },
  { headBytes: 4, kind: "string" },
  { headBytes: 2, kind: "array" },
  { headBytes: 4, kind: "array" },
  { headBytes: 2, kind: "map" },
  { headBytes: 4, kind: "map" },
];

/**
 * Walks a MessagePack value without building it, and throws Failure("bad_message") unless it is one whole
 * value, nested no deeper than the limit, whose counts fit its bytes, with string keys, no extension type
 * and no integer that a double cannot hold. A decoder would make room for a count as soon as it reads it.
 */
export function checkMessagePack(bytes: Uint8Array): void {
  const walk = new Walk(bytes);
  walk.run();
}

class Walk {
  readonly #bytes: Uint8Array;
  #at = 0;
  /** Values still to come in each open container. */
  readonly #left: number[] = [1];
  readonly #isMap: boolean[] = [false];

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes;
  }

  run(): void {
    while (this.#left.length > 0) {
      const depth = this.#left.length - 1;
      const left = this.#left[depth] ?? 0;
      if (left === 0) {
        this.#left.pop();
        this.#isMap.pop();
        continue;
      }
      this.#left[depth] = left - 1;
      this.#value(this.#isMap[depth] === true && left % 2 === 0);
    }
    if (this.#at !== this.#bytes.length) throw bad("bytes follow the value");
  }

  #value(isKey: boolean): void {
    const first = this.#bytes[this.#at];
    if (first === undefined) throw bad("it is cut short");
    this.#at += 1;
    const isString = (first >= 0xa0 && first <= 0xbf) || (first >= 0xd9 && first <= 0xdb);
    if (isKey && !isString) throw bad("a key is not a string");
    if (first < 0x80 || first >= 0xe0) return;
    if (first < 0xa0) this.#open(first & 0x0f, first < 0x90);
    else if (first < 0xc0) this.#skip(first & 0x1f);
    else this.#long(SHAPES[first - 0xc0] ?? REFUSED);
  }

  #long(shape: Shape): void {
    const head = this.#at;
    this.#skip(shape.headBytes);
    switch (shape.kind) {
      case "plain":
        return;
      case "bytes":
      case "string":
        this.#skip(this.#number(head, shape.headBytes));
        return;
      case "array":
      case "map":
        this.#open(this.#number(head, shape.headBytes), shape.kind === "map");
        return;
      case "integer64":
        this.#checkInteger64(head);
        return;
      case "refused":
        throw bad("it has an extension type");
    }
  }

  #open(count: number, isMap: boolean): void {
    const values = isMap ? count * 2 : count;
    if (values > this.#bytes.length - this.#at) throw bad("a count is larger than its bytes");
    if (this.#left.length > WIRE_LIMITS.messageDepthMax) throw bad("it is nested too deeply");
    this.#left.push(values);
    this.#isMap.push(isMap);
  }

  #skip(count: number): void {
    if (count > this.#bytes.length - this.#at) throw bad("it is cut short");
    this.#at += count;
  }

  #number(at: number, size: number): number {
    if (size === 4) return getU32(this.#bytes, at);
    const first = this.#bytes[at] ?? 0;
    return size === 1 ? first : (first << 8) | (this.#bytes[at + 1] ?? 0);
  }

  #checkInteger64(at: number): void {
    const high = getU32(this.#bytes, at);
    const isNegative = high >= 0x8000_0000 && this.#bytes[at - 1] === 0xd3;
    // −2^53 is the first that is not safe.
    const isSafe = isNegative
      ? high > 0xffe0_0000 || (high === 0xffe0_0000 && getU32(this.#bytes, at + 4) > 0)
      : high <= 0x1f_ffff;
    if (!isSafe) throw bad("an integer is too large");
  }
}

function bad(why: string): Failure {
  return new Failure("bad_message", `Cannot decode message: ${why}`);
}
