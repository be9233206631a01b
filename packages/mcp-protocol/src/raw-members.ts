/**
 * Parts of a JSON text as they were written, so that lists can be filtered and renamed while all else stays byte for byte.
 * All throw Failure("parse_error") for what is no JSON of the form they take, and Failure("invalid_request") for a member
 * that stands twice at the level they look at: two readers could take different ones.
 */
import { Failure } from "@capsem/base";
import { CHAR, checkEnd, eachMember, faultAt, skipSpace, skipValue } from "./scan.ts";

interface Member {
  readonly nameFrom: number;
  readonly from: number;
  readonly to: number;
}

/** The values of an object's members, in the order of the text. */
export function membersOf(objectText: string): Map<string, string> {
  const values = new Map<string, string>();
  for (const [name, { from, to }] of spansOf(objectText).members)
    values.set(name, objectText.slice(from, to));
  return values;
}

/** The value of one member, or undefined. */
export function memberOf(objectText: string, name: string): string | undefined {
  const span = spansOf(objectText).members.get(name);
  return span === undefined ? undefined : objectText.slice(span.from, span.to);
}

/** The items of an array. */
export function itemsOf(arrayText: string): string[] {
  const items: string[] = [];
  const from = skipSpace(arrayText, 0);
  if (arrayText.charCodeAt(from) !== CHAR.openArray) throw faultAt(arrayText, from, "an array");
  let at = skipSpace(arrayText, from + 1);
  if (arrayText.charCodeAt(at) === CHAR.closeArray) {
    checkEnd(arrayText, at + 1);
    return items;
  }
  for (;;) {
    const to = skipValue(arrayText, at, 1);
    items.push(arrayText.slice(at, to));
    at = skipSpace(arrayText, to);
    const char = arrayText.charCodeAt(at);
    if (char === CHAR.closeArray) break;
    if (char !== CHAR.comma) throw faultAt(arrayText, at, '"," or "]"');
    at = skipSpace(arrayText, at + 1);
  }
  checkEnd(arrayText, at + 1);
  return items;
}

export function arrayText(items: readonly string[]): string {
  return `[${items.join(",")}]`;
}

/** The object with one member's value replaced, or the member added behind the others. */
export function withMember(objectText: string, name: string, valueText: string): string {
  const { members, closeAt } = spansOf(objectText);
  const span = members.get(name);
  if (span !== undefined) return objectText.slice(0, span.from) + valueText + objectText.slice(span.to);
  let endAt = closeAt;
  for (const { to } of members.values()) endAt = to;
  if (members.size === 0) endAt = objectText.indexOf("{") + 1;
  const comma = members.size === 0 ? "" : ",";
  const added = `${comma}${JSON.stringify(name)}:${valueText}`;
  return objectText.slice(0, endAt) + added + objectText.slice(endAt);
}

/** The same of a member that the object does not have. It is not looked through: the text must be an object. */
export function withLastMember(objectText: string, name: string, valueText: string): string {
  const [head, tail] = aroundLastMember(objectText, name);
  return head + valueText + tail;
}

/** What stands around the value of such a member. */
export function aroundLastMember(objectText: string, name: string): [head: string, tail: string] {
  const closeAt = objectText.lastIndexOf("}");
  const comma = /^\s*\{\s*\}/.test(objectText) ? "" : ",";
  return [`${objectText.slice(0, closeAt)}${comma}${JSON.stringify(name)}:`, objectText.slice(closeAt)];
}

/** The object without a member, as it is when it has none of that name. */
export function withoutMember(objectText: string, name: string): string {
  const { members } = spansOf(objectText);
  const gone = members.get(name);
  if (gone === undefined) return objectText;
  const spans = [...members.values()];
  const place = spans.indexOf(gone);
  const next = spans[place + 1];
  if (next !== undefined) return objectText.slice(0, gone.nameFrom) + objectText.slice(next.nameFrom);
  const before = spans[place - 1];
  const from = before === undefined ? gone.nameFrom : before.to;
  return objectText.slice(0, from) + objectText.slice(gone.to);
}

function spansOf(objectText: string): { members: Map<string, Member>; closeAt: number } {
  const members = new Map<string, Member>();
  const behind = eachMember(objectText, skipSpace(objectText, 0), 0, (name, from, to, nameFrom) => {
    if (members.has(name)) {
      const shown = JSON.stringify(name.slice(0, 64));
      throw new Failure("invalid_request", `Cannot read JSON: the name ${shown} stands twice in one object`);
    }
    members.set(name, { nameFrom, from, to });
  });
  checkEnd(objectText, behind);
  return { members, closeAt: behind - 1 };
}
