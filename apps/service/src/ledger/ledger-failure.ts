import { apiFailure, type ErrorKind, HOST_LEDGER } from "@capsem/api";
import type { Failure } from "@capsem/base";

type LedgerKind = Extract<ErrorKind, "ledger_away" | "ledger_full" | "ledger_broken">;

/** Why rows of a ledger are not taken, for whoever wants to do what they are about. */
export function ledgerFailure(kind: LedgerKind, ledger: string, reason: string | null): Failure<ErrorKind> {
  return apiFailure(kind, `Cannot record the act: ${WORDS[kind](nameOf(ledger), ledger, reason)}`);
}

const WORDS: Readonly<Record<LedgerKind, (name: string, ledger: string, reason: string | null) => string>> = {
  ledger_away: (_name, _ledger, reason) => `the ledger is away (${reason ?? "it is being started"})`,
  ledger_full: (name, _ledger, reason) =>
    reason === null
      ? `the ledger of ${name} is full; delete the VM, whose ledger stays, or raise \`ledger.vm_mib_max\``
      : `the ledger of ${name} is full (${reason})`,
  ledger_broken: (name, ledger, reason) =>
    `the ledger of ${name} is broken (${reason ?? "it is not what was written"}); \`capsem ledger verify ${ledger}\` says where, and with \`--archive\` sets it aside`,
};

function nameOf(ledger: string): string {
  return ledger === HOST_LEDGER ? "the service" : `VM "${ledger}"`;
}
