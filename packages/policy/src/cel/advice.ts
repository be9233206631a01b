/** Where a parser gave up: what stands before and after the place. The first group that matched is in `$1`. */
interface HabitRow {
  readonly before?: RegExp;
  readonly after: RegExp;
  readonly advice: string;
}

/** What people bring along from other languages, and how it is written here. The first row that fits counts. */
const HABITS: readonly HabitRow[] = [
  { after: /^not\s+in\b/i, advice: '"x not in y" is written !(x in y)' },
  { before: /\bnot\s*$/i, after: /^[\w"'([!]/, advice: '"not" is written !' },
  { after: /^(and)\b/i, advice: '"$1" is written &&' },
  { after: /^(or)\b/i, advice: '"$1" is written ||' },
  { after: /^(is|eq|equals)\b/i, advice: '"$1" is written ==' },
  { after: /^(ne)\b/i, advice: '"$1" is written !=' },
  { after: /^(contains|startsWith|endsWith|matches)\b/, advice: '"$1" is written text.$1("…")' },
  { after: /^(like\b|~|=~)/i, advice: '"$1" is written text.matches("…")' },
  { after: /^(=[<>])/, advice: '"$1" is written with its = last' },
  { before: /==$/, after: /^=/, advice: '"===" is written ==' },
  { after: /^=(?!=)/, advice: '"=" is written ==' },
  { before: /<$/, after: /^>/, advice: '"<>" is written !=' },
  { after: /^&/, advice: '"&" is written &&' },
  { after: /^\|/, advice: '"|" is written ||' },
  { after: /^[“”„‘’]/u, advice: 'texts stand in straight quotes, "…"' },
  { before: /\bin\s*\([^()]*$/, after: /^,/, advice: "a list stands in brackets, [ ]" },
  {
    after: /^\\([^\s"'\\])/,
    advice: '\\$1 is no escape of CEL: write \\\\$1, or the text as r"…", where a backslash is itself',
  },
];

/** How to write what stands where the parser gave up; undefined for what is no such habit. */
export function adviceAt(source: string, offset: number): string | undefined {
  const [before, after] = [source.slice(0, offset), source.slice(offset)];
  for (const habit of HABITS) {
    const found = habit.before?.test(before) === false ? null : habit.after.exec(after);
    if (found !== null) return habit.advice.replaceAll("$1", found[1] ?? "");
  }
  return undefined;
}

/** What to write instead of what has the wrong type. */
export function adviceOnType(message: string): string {
  return /^no such overload: !/.test(message) ? "; ! binds first: write !(…) around the comparison" : "";
}

/** The same of a name that is none, such as `True`, and of `not(…)`. */
export function adviceOnName(name: string): string | undefined {
  if (/^(true|false|null)$/i.test(name)) return `"${name}" is written ${name.toLowerCase()}`;
  if (/^not$/i.test(name)) return '"not" is written !';
  return /^(and|or)$/i.test(name) ? adviceAt(name, 0) : undefined;
}
