import { type CelValue, isList, isMap } from "../event/value.ts";

/** Quotes, backslashes, and whatever a terminal or an editor would not show as it is. */
const ESCAPED = /["\\\p{Cc}\p{Zl}\p{Zp}\p{Cf}]/gu;

/** The text as CEL writes it, on one line. Undefined for a lone surrogate, which no file can hold. */
export function celText(text: string): string | undefined {
  if (/\p{Surrogate}/u.test(text)) return undefined;
  return `"${text.replace(ESCAPED, escaped)}"`;
}

function escaped(character: string): string {
  if (character === '"' || character === "\\") return `\\${character}`;
  const code = character.codePointAt(0) ?? 0;
  return code > 0xffff
    ? `\\U${code.toString(16).padStart(8, "0")}`
    : `\\u${code.toString(16).padStart(4, "0")}`;
}

/** A plain value as CEL writes it. Undefined for maps, and for lists of several types: rules have no such literals. */
export function celLiteral(value: CelValue): string | undefined {
  if (typeof value === "string") return celText(value);
  if (typeof value === "number") return celDouble(value);
  if (isMap(value)) return undefined;
  if (!isList(value)) return String(value);
  const kinds = new Set(value.map(kindOf));
  const items = value.map(celLiteral);
  return kinds.size > 1 || items.includes(undefined) ? undefined : `[${items.join(", ")}]`;
}

function kindOf(value: CelValue): string {
  if (isList(value)) return `list of ${[...new Set(value.map(kindOf))].join()}`;
  return value === null ? "null" : typeof value;
}

function celDouble(value: number): string | undefined {
  if (!Number.isFinite(value)) return undefined;
  const text = String(value);
  return /[.e]/.test(text) ? text : `${text}.0`;
}
