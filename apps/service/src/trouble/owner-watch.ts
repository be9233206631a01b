import type { Panic } from "@capsem/api";
import { TIMES } from "../limits.ts";
import type { ServiceLog } from "../log/service-log.ts";
import type { OwnerRun } from "../owner/owner-run.ts";
import type { OwnerStart, OwnerStarter } from "../owner/owner-start.ts";
import { settledWithin } from "../owner/settled.ts";
import type { FindingBook } from "./finding-book.ts";
import { OwnerWords } from "./owner-words.ts";

export interface OwnerWatchParts {
  readonly starter: Pick<OwnerStarter, "start">;
  readonly findings: Pick<FindingBook, "add">;
  readonly nowMs: () => number;
  readonly keepPanic: (panic: Panic) => void;
  readonly log: ServiceLog;
}

export type StartsOwners = Pick<OwnerStarter, "start">;

/** Starts owners and listens to them: one that fails by itself leaves a panic, a lane that broke a finding. */
export function watchedStarter(parts: OwnerWatchParts): StartsOwners {
  return {
    async start(start: OwnerStart): Promise<OwnerRun> {
      const words = new OwnerWords();
      const vmId = start.plan.vm_id;
      const onLogLine = (line: string) => {
        start.onLogLine(line);
        const said = words.take(line);
        if (said === "lanes start again" || said === "lane ended") {
          parts.findings.add("lane_reset", vmId, said, line);
        }
      };
      const run = await parts.starter.start({ ...start, onLogLine });
      void run.gone.then(async () => {
        const { crash, pid } = run;
        if (crash === null) return;
        await settledWithin(run.saidAll, TIMES.lastWordsTimeoutMs);
        const time = new Date(parts.nowMs());
        parts.keepPanic(words.panic({ pid: pid ?? 0, time, how: crash, vmId }));
        parts.log("error", "owner panicked", { vm_id: vmId, how: crash });
      });
      return run;
    },
  };
}
