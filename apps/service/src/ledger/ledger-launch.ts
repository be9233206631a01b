import type { LedgerPlan } from "@capsem/api";
import { NODE_ENVIRONMENT } from "@capsem/jail";
import { launchWords } from "@capsem/native";
import type { OwnerProgram } from "../owner/owner-launch.ts";
import { LEDGER_LIMITS } from "./limits.ts";

/**
 * The words that start the ledger confined: it reads its program, writes below `ledgers`, and has its channels. It keeps
 * no right of root's, whoever the service is.
 */
export function ledgerWords(program: OwnerProgram, plan: LedgerPlan): { file: string; args: string[] } {
  const { read, exec, write } = program.grants;
  return launchWords({
    parentPid: program.servicePid,
    command: program.nodeBinary,
    args: [program.bundle],
    grants: { read, exec, write },
    // Below it the ledger makes a folder for each VM.
    trees: [plan.folder],
    keepFds: plan.channels.map(({ fd }) => fd),
    openFilesMax: LEDGER_LIMITS.openFilesMax,
    landlock: plan.allow_unconfined ? "try" : "require",
    netNamespace: "try",
    env: NODE_ENVIRONMENT,
    ...(program.isRoot ? { asRoot: true } : {}),
  });
}
