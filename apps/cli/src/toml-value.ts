const ESCAPES: Readonly<Record<string, string>> = {
  b: "\b",
  t: "\t",
  n: "\n",
  f: "\f",
  r: "\r",
  '"': '"',
  "\\": "\\",
};

const KEY = /(?:[A-Za-z0-9_-]+|"[^"\\\n]*"|'[^'\n]*')[ \t]*/y;

/**
 * The value of `key = value`, as far as a rule has such: texts in all four forms, whole numbers, true and false. A key
 * may have several names with dots between them.
 */
export function readTomlValue(statement: string, names = 1): string | number | boolean | null {
  KEY.lastIndex = 0;
  for (let count = 1; count <= names; count += 1) {
    if (!KEY.test(statement) || statement[KEY.lastIndex] !== (count < names ? "." : "=")) return null;
    KEY.lastIndex += 1;
  }
  const text = statement.slice(KEY.lastIndex).replace(/^[ \t]*/, "");
  if (text === "true" || text === "false") return text === "true";
  if (/^[+-]?(0|[1-9](_?[0-9])*)$/.test(text)) return Number(text.replaceAll("_", ""));
  const literal = /^'''(?:\r?\n)?([\s\S]*)'''$/.exec(text) ?? /^'([^'\n]*)'$/.exec(text);
  if (literal !== null) return literal[1] ?? "";
  const lines = /^"""(?:\r?\n)?([\s\S]*)"""$/.exec(text);
  // A backslash at a line's end takes all white space after it along.
  if (lines !== null) return unescaped((lines[1] ?? "").replace(/(?<!\\)((?:\\\\)*)\\[ \t]*\r?\n\s*/g, "$1"));
  const basic = /^"((?:[^"\\\n]|\\.)*)"$/.exec(text);
  return basic === null ? null : unescaped(basic[1] ?? "");
}

/** Null for an escape that TOML does not have. */
function unescaped(text: string): string | null {
  let isGood = true;
  const said = text.replace(
    /\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|([\s\S]?))/g,
    (_, four?: string, eight?: string, one?: string) => {
      const hex = four ?? eight;
      const code = hex === undefined ? null : Number.parseInt(hex, 16);
      if (code !== null && code <= 0x10_ffff && (code < 0xd800 || code > 0xdfff))
        return String.fromCodePoint(code);
      const found = one === undefined ? undefined : ESCAPES[one];
      if (found === undefined) isGood = false;
      return found ?? "";
    },
  );
  return isGood ? said : null;
}
