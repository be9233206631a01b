import type { Stats } from "node:fs";

/** An entry of the guest's tree whose content is known. */
export interface Arrival {
  /** Relative to the tree, parts joined with "/". */
  readonly path: string;
  readonly kind: "file" | "directory" | "symlink";
  readonly mode: number;
  readonly size: number;
  readonly target: string;
  /** Of a file's bytes. */
  readonly sha256: string;
}

/** What is at the same path at home; the costly facts are read when asked for. */
export interface AtHome {
  readonly stat: Stats;
  readonly sha256: () => string;
  readonly target: () => string;
}

/**
 * place: make or replace it at home. mode: only set its permission bits. keep: leave home as it is.
 * beside: put the guest's under another name, because both sides changed it.
 */
export type Action = "place" | "mode" | "keep" | "beside";

export interface Judge {
  judge(arrival: Arrival, home: AtHome | null): Action;
}

/** A plain copy: what arrives wins, except that a folder is never replaced by something else. */
export const REPLACING: Judge = {
  judge: (arrival, home) => {
    if (home === null) return "place";
    if (arrival.kind === "directory") return home.stat.isDirectory() ? "keep" : "beside";
    return home.stat.isDirectory() ? "beside" : "place";
  },
};
