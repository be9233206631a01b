import { NOTE_CHARS_MAX } from "./limits.ts";
import { printable } from "./render.ts";

const CONTROL_C = "\x03";
const CONTROL_U = "\x15";
const ESCAPE = "\x1b";
const ENDS: ReadonlySet<string> = new Set(["\r", "\n"]);
const ERASES: ReadonlySet<string> = new Set(["\x7f", "\b"]);

export type NoteKey =
  | { readonly kind: "echo"; readonly text: string }
  | { readonly kind: "line"; readonly text: string }
  /** Taken back: nothing is answered. */
  | { readonly kind: "left" };

/** A line that is typed on a terminal in raw mode, where nobody else shows what is typed. */
export class NoteLine {
  #chars: string[] = [];

  key(key: string): NoteKey {
    if (key === CONTROL_C || key === ESCAPE) return { kind: "left" };
    if (ENDS.has(key)) return { kind: "line", text: this.#chars.join("").trim() };
    if (ERASES.has(key)) return { kind: "echo", text: this.#chars.pop() === undefined ? "" : "\b \b" };
    if (key === CONTROL_U) {
      const text = "\b \b".repeat(this.#chars.length);
      this.#chars = [];
      return { kind: "echo", text };
    }
    if (printable(key) !== key || this.#chars.length >= NOTE_CHARS_MAX) return { kind: "echo", text: "" };
    this.#chars.push(key);
    return { kind: "echo", text: key };
  }
}
