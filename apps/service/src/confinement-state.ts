import { CONFINEMENT_LIMITS } from "./limits.ts";
import type { OwnerRun } from "./owner/owner-run.ts";
import type { Confinement } from "./powers.ts";

interface RunningVm {
  readonly id: string;
  readonly run: Pick<OwnerRun, "unconfined" | "notes"> | null;
}

/**
 * What confines VMs here: what this machine can do, and what each that runs said of itself. One that lacks a part makes
 * it "not enforced". The words are an owner's, so that they are cut.
 */
export function confinementState(machine: Confinement, vms: readonly RunningVm[]): Confinement {
  const living = vms.flatMap(({ id, run }) => (run === null ? [] : [{ id, run }]));
  const open = living.filter(({ run }) => run.unconfined.length > 0);
  const noted = living.filter(({ run }) => run.notes.length > 0);
  const words = [
    machine.reason,
    ...open.slice(0, CONFINEMENT_LIMITS.vmsNamedMax).map(({ id, run }) => {
      return `VM ${id} runs unconfined: ${cut(run.unconfined)}`;
    }),
    ...(open.length > CONFINEMENT_LIMITS.vmsNamedMax ? [`${open.length} VMs in all run unconfined`] : []),
    ...noted.slice(0, 1).map(({ run }) => {
      return `${noted.length} of ${living.length} running VMs lack a second wall: ${cut(run.notes)}`;
    }),
  ];
  return { isEnforced: machine.isEnforced && open.length === 0, reason: words.join("; ") };
}

function cut(said: readonly string[]): string {
  return said.join(", ").slice(0, CONFINEMENT_LIMITS.wordsCharactersMax);
}
