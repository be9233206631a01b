import { vmmFailure } from "./error.ts";

/**
 * One line of QMP, parsed. The peer is the hypervisor, which a guest may have taken over: nothing of it is
 * trusted but its type. Source: QEMU Machine Protocol Specification, sections 2.2 to 2.5.
 */
export type QmpLine =
  | { kind: "greeting" }
  | { kind: "answer"; id: number; value: unknown }
  | { kind: "refusal"; id: number | null; class: string; description: string }
  | { kind: "event"; name: string; data: QmpObject };

export type QmpObject = { readonly [key: string]: unknown };

export function isObject(value: unknown): value is QmpObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Throws `hypervisor_protocol` for everything that is not one of the four forms. */
export function parseQmpLine(text: string): QmpLine {
  const value = parseJson(text);
  if (!isObject(value)) throw unreadable("not an object");
  if (Object.hasOwn(value, "QMP")) return { kind: "greeting" };
  if (Object.hasOwn(value, "event")) {
    if (typeof value.event !== "string") throw unreadable("an event without a name");
    if (value.data !== undefined && !isObject(value.data)) throw unreadable("an event with bad data");
    return { kind: "event", name: value.event, data: value.data ?? {} };
  }
  if (Object.hasOwn(value, "return")) {
    if (!isId(value.id)) throw unreadable("an answer without its id");
    return { kind: "answer", id: value.id, value: value.return };
  }
  if (isObject(value.error)) {
    // QEMU leaves the id out when it could not read the command.
    if (value.id !== undefined && !isId(value.id)) throw unreadable("a refusal with a bad id");
    const { class: name, desc } = value.error;
    if (typeof name !== "string" || typeof desc !== "string") throw unreadable("a refusal without words");
    return { kind: "refusal", id: value.id ?? null, class: name, description: desc };
  }
  throw unreadable("neither answer nor event");
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw vmmFailure("hypervisor_protocol", "Cannot read QMP: not JSON", {
      cause,
      detail: text.slice(0, 200),
    });
  }
}

function isId(value: unknown): value is number {
  return Number.isSafeInteger(value);
}

function unreadable(why: string) {
  return vmmFailure("hypervisor_protocol", `Cannot read QMP: ${why}`);
}

/** Cuts a byte flow into lines and throws before it would hold more than `bytesMax` of an open one. */
export class LineSplitter {
  readonly #bytesMax: number;
  #parts: Buffer[] = [];
  #bytes = 0;

  constructor(bytesMax: number) {
    this.#bytesMax = bytesMax;
  }

  push(chunk: Buffer): string[] {
    const lines: string[] = [];
    let start = 0;
    for (let end = chunk.indexOf(10); end !== -1; end = chunk.indexOf(10, start)) {
      this.#add(chunk.subarray(start, end));
      const line = Buffer.concat(this.#parts).toString("utf8").trim();
      if (line !== "") lines.push(line);
      this.#parts = [];
      this.#bytes = 0;
      start = end + 1;
    }
    if (start < chunk.length) this.#add(chunk.subarray(start));
    return lines;
  }

  #add(part: Buffer): void {
    this.#bytes += part.length;
    if (this.#bytes > this.#bytesMax) {
      throw vmmFailure("hypervisor_protocol", `Cannot read QMP: line over ${this.#bytesMax} bytes`);
    }
    this.#parts.push(part);
  }
}
