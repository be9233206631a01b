import type { Failure } from "@capsem/base";
import { shortId } from "./ask-text.ts";
import { evaluateOptions, type Typed } from "./evaluate-hint.ts";
import { requestFault } from "./request-fault.ts";
import { shellWord } from "./shell-word.ts";

const ID = /\bvm_[a-z2-7]{16}\b/g;
/** A header of a tool server has a credential that was forgotten, or never given for that host. */
const UNLENT =
  /\bthe credential in its header \S+ is not registered, or is for other hosts than ([a-z0-9.:[\]-]+)/i;
/** More faults of a file than these are counted, not told. */
const FAULTS_TOLD_MAX = 20;

/** A failure in the user's words: VMs by the names that were typed, and what to do about it. */
export function textOfFailure(
  failure: Failure,
  names: ReadonlyMap<string, string>,
  typed: Typed | null = null,
): string {
  const fault = requestFault(failure, typed);
  if (fault !== null) return fault;
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
  // A VM, or a tool server.
  const first = typed?.args.words[0];
  const [, host] = UNLENT.exec(failure.message) ?? [];
  if (host !== undefined)
    return [
      `give it again: capsem credentials inject NAME --host ${shellWord(host)}; those that there are: capsem credentials list`,
    ];
  if (typeof failure.facts?.grant === "string") return grantAdvice(failure.facts.grant, typed);
  switch (failure.kind) {
    case "policy":
      return policyAdvice(failure, typed);
    case "locked":
      return lockedAdvice(failure);
    case "ledger_broken":
      return first === undefined
        ? ["what is wrong with it: capsem ledger verify --all"]
        : [
            `what is wrong with it: capsem ledger verify ${shellWord(first)}; --archive sets it aside, so that the VM starts`,
          ];
    case "ledger_full":
      return [
        "give it more room: capsem settings set ledger.vm_mib_max=MIB; exporting and deleting work still",
      ];
    case "mcp_server_not_found":
      return ["those that there are: capsem mcp servers"];
    case "mcp_tool_not_found":
      return [`those that there are: capsem mcp tools ${first === undefined ? "SERVER" : shellWord(first)}`];
    case "upstream_failed":
      return ["how tool servers are: capsem mcp servers; what they were asked: capsem host-logs aggregator"];
    case "mcp_server_timeout":
      return [
        `give that server more time: capsem mcp add ${shellWord(first ?? "NAME")} URL --timeout-secs N`,
      ];
    case "mcp_server_disabled":
      return [`declare it without --disabled: capsem mcp add ${shellWord(first ?? "NAME")} URL`];
    case "ledger_away":
      return ["how it is: capsem status; what it says: capsem host-logs ledger"];
    default:
      return [];
  }
}

/** An address of this machine or a private network: only who declares the server can mean it. */
function grantAdvice(grant: string, typed: Typed | null): string[] {
  const [name = "NAME", url = "URL"] = typed?.name === "mcp add" ? typed.args.words : [];
  const words = ["--grant", grant].map(shellWord).join(" ");
  return [`if that address is meant: capsem mcp add ${shellWord(name)} ${shellWord(url)} ${words}`];
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
  return (
    /\bcorporation has (?:set|declared)\b/.test(message) && !/^(corp|profiles\.rules|default)\./.test(subject)
  );
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
