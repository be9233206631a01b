import type { Failure } from "@capsem/base";
import type { Args } from "./args.ts";
import { shortId } from "./ask-text.ts";
import { shellWord } from "./shell-word.ts";

const ID = /\bvm_[a-z2-7]{16}\b/g;
/** More faults of a file than these are counted, not told. */
const FAULTS_TOLD_MAX = 20;

/** A failure in the user's words: VMs by the names that were typed, and what to do about it. */
export function textOfFailure(failure: Failure, names: ReadonlyMap<string, string>): string {
  const text = failure.message.replace(ID, (id) => names.get(id) ?? id);
  const rule = failure.facts?.rule_id;
  if (failure.kind === "policy" && typeof rule === "string" && !text.includes(rule))
    return `${text} (rule ${rule})`;
  if (failure.kind === "quota") return `${text}; delete or stop one: capsem list`;
  const stopped = /^Cannot (?:work in|run)\b.* "([a-z0-9_-]+)": it is stopped$/.exec(text);
  if (failure.kind === "wrong_state" && stopped !== null)
    return `${text}; start it: capsem start ${stopped[1]}`;
  return text;
}

interface Typed {
  readonly name: string;
  readonly args: Args;
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
      return ["the corporation's policy has it: capsem corp info"];
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

function policyAdvice({ facts = {}, retryable }: Failure, typed: Typed | null): string[] {
  if (typeof facts.ask_id === "string") {
    const id = shortId(facts.ask_id);
    return retryable
      ? [`allow it from another terminal, then try again: capsem asks approve ${id}`]
      : ["what became of the ask: capsem asks list --all"];
  }
  return [`why, and what would be allowed: capsem rules evaluate ${evaluated(typed)}`];
}

/** The options that ask about the same command again. */
function evaluated(typed: Typed | null): string {
  const { name, args } = typed ?? { name: "", args: null };
  const at = name === "run" ? 0 : 1;
  const isJob = ["run", "exec", "shell"].includes(name);
  const line = isJob ? (args?.words[at] ?? args?.rest?.map(shellWord).join(" ")) : undefined;
  if (line === undefined) return "--type TYPE --field KEY=VALUE";
  const vm = name === "run" ? undefined : args?.words[0];
  return `--command ${shellWord(line)}${vm === undefined ? "" : ` --vm ${shellWord(vm)}`}`;
}

/** Those that the failure has not said itself. */
function faultsOf({ message, facts = {} }: Failure): string[] {
  const all = Array.isArray(facts.faults) ? (facts.faults as FaultText[]) : [];
  const faults = all.filter((fault) => !message.includes(fault.message));
  const told = faults.slice(0, FAULTS_TOLD_MAX).map((fault) => `  ${faultLine(fault)}`);
  const more = faults.length - told.length;
  return more > 0 ? [...told, `  and ${more} more`] : told;
}

export interface FaultText {
  readonly message: string;
  readonly file: string | null;
  readonly line: number | null;
  readonly column: number | null;
}

/** As compilers say it, so that an editor finds the place. */
export function faultLine({ message, file, line, column }: FaultText, name = file): string {
  const at = [name, line, column].filter((part) => part !== null);
  return at.length === 0 ? message : `${at.join(":")}: ${message}`;
}
