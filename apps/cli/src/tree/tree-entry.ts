import type { TarEntry } from "./tar-reader.ts";

/** What arrives of a guest's tree: an entry, or the name of one that does not come. */
export type TreeEntry = TarEntry | AbsentEntry;

export interface AbsentEntry {
  readonly kind: "absent";
  readonly path: string;
  /** Null where nobody refused it. */
  readonly reason: string | null;
}

/** Of a Failure that is about one file alone: the others may still come. */
export const CHANGED_MEANWHILE = "changed_meanwhile";
