import type { Failure } from "@capsem/base";
import type { Typed } from "./evaluate-hint.ts";
import type { Option } from "./option-table.ts";
import { findCommand } from "./parse.ts";

/** As the service says what of a request no route takes: each fault by its path, and what is wanted there. */
const FAULTY = /^Cannot read the request: (?:path|query|body): (.+)$/s;
const FAULT = /^([a-z_]+)((?:\.[^:]+)*): (.+)$/s;

/** A request that was refused for its form, in the words of the command line; null where it is not about these. */
export function requestFault({ kind, message }: Failure, typed: Typed | null): string | null {
  const [, list] = (kind === "invalid_input" && FAULTY.exec(message)) || [];
  if (list === undefined || typed === null) return null;
  const faults = list.split("; ").map((each) => faultText(each, typed));
  return faults.some((fault) => fault === null) ? null : faults.join("; ");
}

function faultText(fault: string, typed: Typed): string | null {
  const [, name, rest = "", text = ""] = FAULT.exec(fault) ?? [];
  const what = name === undefined ? null : whatOf(name, rest.slice(1), typed);
  return what === null ? null : `Cannot use ${what}: ${text.startsWith("takes ") ? `it ${text}` : text}`;
}

/** The word or option that became a field. */
function whatOf(name: string, rest: string, { name: command, args }: Typed): string | null {
  const found = findCommand(command);
  const option = found?.options?.find((each) => isOf(each, name));
  if (option !== undefined && args.flag(option.name)) {
    const value = args.all(option.name)[/^\d+$/.test(rest) ? Number(rest) : 0];
    // A value of a header may be a secret.
    const isShown = value !== undefined && option.name !== "header";
    return isShown ? `--${option.name} ${JSON.stringify(value)}` : `--${option.name}`;
  }
  const words = wordNames(found?.usage ?? "");
  const at = words.findIndex((word) => name === word || name === `${word}_id`);
  const word = args.words[at < 0 && /^(?:id|name)$/.test(name) ? 0 : at];
  return word === undefined ? null : JSON.stringify(word);
}

function isOf({ name }: Option, field: string): boolean {
  const spelled = field.replaceAll("_", "-");
  return spelled === name || spelled === `${name}s`;
}

/** Of `mcp add NAME URL [OPTIONS]`: name, url. */
function wordNames(usage: string): string[] {
  const [first = ""] = usage.split(" | ");
  return [...first.matchAll(/(?<=^|\s)\[?([A-Z]+)\]?(?=\s|$)/g)].map(([, word = ""]) => word.toLowerCase());
}
