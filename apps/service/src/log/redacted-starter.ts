import type { OwnerStart } from "../owner/owner-start.ts";
import type { StartsOwners } from "../trouble/owner-watch.ts";
import type { LineRedactor } from "./line-redactor.ts";
import { isCutLine } from "./line-splitter.ts";

/**
 * Starts owners whose lines are redacted before anybody sees them, each owner's in their order: whatever becomes of a
 * line, a log file, the tail that an answer shows, a panic or a finding, is made of what this lets through.
 */
export function redactedStarter(starter: StartsOwners, newRedactor: () => LineRedactor): StartsOwners {
  return {
    start(start: OwnerStart) {
      const redact = newRedactor();
      return starter.start({
        ...start,
        onLogLine: (line) => start.onLogLine(redact(line, isCutLine(line))),
      });
    },
  };
}
