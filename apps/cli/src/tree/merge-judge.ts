import type { BaseEntry, Baseline } from "./baseline.ts";
import type { Arrival, AtHome, Judge } from "./judge.ts";

/** Changes come home: the guest's and the home's tree are each compared with what was copied in. */
export function mergeJudge(baseline: Baseline): Judge {
  return {
    judge: (arrival, home) => {
      const base = baseline.get(arrival.path);
      if (base !== undefined && sameContent(base, arrival)) {
        if (!differsInMode(base, arrival)) return "keep";
        return home !== null && isUnchanged(base, home) ? "mode" : "keep";
      }
      if (base === undefined ? home === null : home !== null && isUnchanged(base, home)) return "place";
      return home !== null && sameAtHome(arrival, home) ? "keep" : "beside";
    },
  };
}

/** True when nobody at home touched it since it was copied in. Bytes are hashed only where times differ. */
export function isUnchanged(base: BaseEntry, home: AtHome): boolean {
  const { stat } = home;
  switch (base.kind) {
    case "directory":
      return stat.isDirectory();
    case "symlink":
      return stat.isSymbolicLink() && home.target() === base.target;
    case "file":
      if (!stat.isFile() || stat.size !== base.size || (stat.mode & 0o777) !== base.mode) return false;
      return stat.mtimeMs === base.mtimeMs || home.sha256() === base.sha256;
  }
}

function sameContent(base: BaseEntry, arrival: Arrival): boolean {
  switch (base.kind) {
    case "directory":
      return arrival.kind === "directory";
    case "symlink":
      return arrival.kind === "symlink" && arrival.target === base.target;
    case "file":
      return arrival.kind === "file" && arrival.size === base.size && arrival.sha256 === base.sha256;
  }
}

function differsInMode(base: BaseEntry, arrival: Arrival): boolean {
  return base.kind !== "symlink" && base.mode !== arrival.mode;
}

function sameAtHome(arrival: Arrival, home: AtHome): boolean {
  const { stat } = home;
  switch (arrival.kind) {
    case "directory":
      return stat.isDirectory();
    case "symlink":
      return stat.isSymbolicLink() && home.target() === arrival.target;
    case "file":
      return stat.isFile() && stat.size === arrival.size && home.sha256() === arrival.sha256;
  }
}
