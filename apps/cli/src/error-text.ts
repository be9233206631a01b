import type { Failure } from "@capsem/base";
import { shortId } from "./ask-text.ts";
import { evaluateOptions, type Typed } from "./evaluate-hint.ts";
import { shellWord } from "./shell-word.ts";

const ID = /\bvm_[a-z2-7]{16}\b/g;
/** More faults of a file than these are counted, not told. */
const FAULTS_TOLD_MAX = 20;

/** A failure in the user's words: VMs by the names that were typed, and what to do about it. */
export function textOfFailure(failure: Failure, names: ReadonlyMap<string, string>): string {
  const text = failure.message.replace(ID, (id) => names.get(id) ?? id);
  if (failure.kind === "policy") return withRule(failure, text);
  if (failure.kind === "quota") return `${text}; delete or stop one: capsem list`;
  const stopped = /^Cannot (?:work in|run)\b.* "([a-z0-9_-]+)": it is stopped$/.exec(text);
  if (failure.kind === "wrong_state" && stopped !== null)
    return `${text}; start it: capsem start ${stopped[1]}`;
  return text;
}

/** A refusal names its rule, once. */
export function withRule({ facts }: Failure, text: string): string {
  const rule = facts?.rule_id;
  return typeof rule !== "string" || text.includes(rule) ? text : `${text} (rule ${rule})`;
}

/** What to do about a refusal, each a line; of `typed` the command is taken up again. */
export function adviceOf(failure: Failure, typed: Typed | null): string[] {
  return [...faultsOf(failure), ...adviceOfKind(failure, typed)];
}

function adviceOfKind(failure: Failure, typed: Typed | null): string[] {
  const vm = typed?.args.words[0];
  switch (failure.kind) {
    case "policy":
      return policyAdvice(failure, typed);
    case "locked":
      return lockedAdvice(failure);
    case "ledger_broken":
      return vm === undefined
        ? ["what is wrong with it: capsem ledger verify --all"]
        : [
            `what is wrong with it: capsem ledger verify ${shellWord(vm)}; --archive sets it aside, so that the VM starts`,
          ];
    case "ledger_full":
      return [
        "give it more room: capsem settings set ledger.vm_mib_max=MIB; exporting and deleting work still",
      ];
    case "ledger_away":
      return ["how it is: capsem status; what it says: capsem host-logs ledger"];
    default:
      return [];
  }
}

function policyAdvice({ message, facts = {}, retryable }: Failure, typed: Typed | null): string[] {
  if (typeof facts.ask_id === "string") {
    const id = shortId(facts.ask_id);
    return retryable
      ? [`allow it from another terminal, then try again: capsem asks approve ${id}`]
      : ["what became of the ask: capsem asks list --all"];
  }
  const rule = typeof facts.rule_id === "string" ? shellWord(facts.rule_id) : null;
  // What a command wrote cannot be asked about without it.
  if (/which has run/.test(message)) return rule === null ? [] : [`the rule: capsem rules show ${rule}`];
  const options = evaluateOptions(typed, message);
  if (options !== null) return [`why: capsem rules evaluate ${options}`];
  return rule === null ? [] : [`the rule: capsem rules show ${rule}`];
}

/** Only where the corporation's own rule or key is the reason: there is more that no command changes. */
function lockedAdvice(failure: Failure): string[] {
  const subjects = factList<FaultText>(failure, "faults").map(({ subject }) => subject ?? "");
  if (subjects.some((subject) => subject.startsWith("corp.rules.") || isCorpKey(failure, subject)))
    return ["the corporation's policy has it: capsem corp info"];
  const rule = subjects.find((subject) => subject.startsWith("profiles.rules."));
  return rule === undefined ? [] : [`where it stands: capsem rules show ${shellWord(rule)}`];
}

/** A setting of the user's that the corporation has set. */
function isCorpKey({ message }: Failure, subject: string): boolean {
  return /\bcorporation has set\b/.test(message) && !/^(corp|profiles\.rules|default)\./.test(subject);
}

function factList<T>({ facts = {} }: Failure, name: string): readonly T[] {
  return Array.isArray(facts[name]) ? (facts[name] as T[]) : [];
}

/** Those that the failure has not said itself. */
function faultsOf(failure: Failure): string[] {
  const all = factList<FaultText>(failure, "faults");
  const faults = all.filter((fault) => !failure.message.includes(fault.message));
  const told = faults.slice(0, FAULTS_TOLD_MAX).map((fault) => `  ${faultLine(fault)}`);
  const more = faults.length - told.length;
  return more > 0 ? [...told, `  and ${more} more`] : told;
}

export interface FaultText {
  readonly message: string;
  readonly file: string | null;
  readonly line: number | null;
  readonly column: number | null;
  readonly subject?: string | null;
}

/** As compilers say it, so that an editor finds the place. */
export function faultLine({ message, file, line, column }: FaultText, name = file): string {
  const at = [name, line, column].filter((part) => part !== null);
  return at.length === 0 ? message : `${at.join(":")}: ${message}`;
}
