import { clampCount, makeEntry, type RawEntry, typeOf } from "./file-entry.ts";
import { guestFailure } from "./guest-error.ts";

/**
 * What `find -printf '%y\t%m\t%U\t%G\t%s\t%T@\t%P\0%l\0'` wrote: the facts and the relative name, then a
 * link's target, each ended by a NUL. The program is the workload's own, so its output may be anything:
 * undefined above `entriesMax` entries, a Failure when it is malformed.
 */
export function parseFindOutput(bytes: Buffer, entriesMax: number): RawEntry[] | undefined {
  const entries: RawEntry[] = [];
  let at = 0;
  while (at < bytes.length) {
    const nameEnd = bytes.indexOf(0, at);
    const targetEnd = nameEnd < 0 ? -1 : bytes.indexOf(0, nameEnd + 1);
    if (targetEnd < 0) throw malformed();
    if (entries.length === entriesMax) return undefined;
    entries.push(parseEntry(bytes.subarray(at, nameEnd), bytes.subarray(nameEnd + 1, targetEnd)));
    at = targetEnd + 1;
  }
  return entries;
}

const FACTS =
  /^([a-zA-Z?])\t([0-7]{1,5})\t([0-9]{1,10})\t([0-9]{1,10})\t([0-9]{1,19})\t(-?[0-9]{1,19})(\.[0-9]{1,12})?\t/;

function parseEntry(head: Buffer, target: Buffer): RawEntry {
  // One byte a character: the facts are ASCII and end before the name begins.
  const match = FACTS.exec(head.toString("latin1", 0, 128));
  if (match === null) throw malformed();
  const [facts, type = "", mode = "", uid = "", gid = "", size = "", seconds = "", fraction = "0"] = match;
  const name = head.subarray(facts.length);
  if (name.length === 0 || name.length > 4_095) throw malformed();
  return makeEntry(name, target, {
    type: typeOf(type),
    mode: Number.parseInt(mode, 8) & 0o7777,
    uid: Number(uid),
    gid: Number(gid),
    size: clampCount(Number(size)),
    mtime_ms: Number(seconds) * 1000 + Number(fraction) * 1000,
  });
}

function malformed(): Error {
  return guestFailure("file_failed", "Cannot list: the VM's find answered with something else");
}
