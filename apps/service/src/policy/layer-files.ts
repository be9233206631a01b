import { basename, dirname, resolve } from "node:path";
import type { PolicyFaultInfo } from "@capsem/api";
import {
  type Checked,
  joinLayers,
  POLICY_LIMITS,
  type PolicyLayer,
  type Position,
  parseLayer,
  type RuleSource,
} from "@capsem/policy";
import { faultInfo, fileFault } from "./faults.ts";
import { nextTurn } from "./next-turn.ts";
import { type FileRead, readPolicyFile } from "./policy-file.ts";

/** The files of one author, read and checked. */
export interface LayerFiles {
  /** `settings.toml` or `corp.toml`. */
  readonly path: string;
  readonly name: string;
  /** Null where there is no such file: nothing is said then. */
  readonly text: string | null;
  /** What the main file alone says: what routes may change. */
  readonly main: PolicyLayer;
  /** With the rule files that it names. */
  readonly whole: PolicyLayer;
  /** Which file each rule stands in, by id. */
  readonly fileOf: ReadonlyMap<string, string>;
  /** Every file that was read, or was looked for, with its text. */
  readonly texts: ReadonlyMap<string, string | null>;
  /** What each of them says by itself. */
  readonly parsed: ReadonlyMap<string, ParsedText>;
}

/** A text, null for that of no file, and what it says. */
export interface ParsedText {
  readonly text: string | null;
  readonly layer: PolicyLayer;
}

export type LayerRead =
  | { readonly kind: "ok"; readonly layer: LayerFiles }
  | {
      readonly kind: "refused";
      readonly faults: readonly PolicyFaultInfo[];
      readonly paths: readonly string[];
    };

export interface LayerAsked {
  readonly source: Exclude<RuleSource, "builtin">;
  readonly path: string;
  readonly uid: number;
  /** What the main file says, where it was read already, or is a change before it is written. */
  readonly read?: FileRead;
  /** Of files by their paths: one that still says the same is not parsed again. */
  readonly known?: ReadonlyMap<string, ParsedText>;
}

/** Reads a main file and the rule files that it names. One that is not there says nothing. */
export async function readLayer(asked: LayerAsked): Promise<LayerRead> {
  const { path, uid } = asked;
  const name = basename(path);
  const paths = [path];
  const refuse = (faults: readonly PolicyFaultInfo[]): LayerRead => ({ kind: "refused", faults, paths });
  const read = asked.read ?? readPolicyFile(path, name, uid);
  if (read.kind === "refused") return refuse([read.fault]);
  const text = read.kind === "text" ? read.text : null;
  const parsed = parsedText(asked, path, text);
  if (parsed.kind === "refused") return refuse(parsed.faults.map((fault) => faultInfo(fault, name)));
  const parts: [Part, ...Part[]] = [{ name, path, text, layer: parsed.value }];
  const faults: PolicyFaultInfo[] = [];
  for (const file of ruleFilesOf(parsed.value)) {
    const filePath = resolve(dirname(path), file);
    paths.push(filePath);
    await nextTurn();
    const part = readRuleFile(asked, file, filePath);
    if ("layer" in part) parts.push(part);
    else faults.push(...part.faults);
  }
  const [, ...files] = parts;
  const joined = joinLayers([parsed.value, ...files.map(({ layer }) => layer)]);
  if (joined.kind === "refused") {
    faults.push(...joined.faults.map((fault) => faultInfo(fault, fileWith(parts, fault.at) ?? name)));
  }
  if (faults.length > 0 || joined.kind === "refused") return refuse(faults.slice(0, POLICY_LIMITS.faultsMax));
  return {
    kind: "ok",
    layer: { path, name, text, main: parsed.value, whole: joined.value, ...tables(parts) },
  };
}

/** Names of rule files, relative to the main file's folder. */
export function ruleFilesOf(layer: PolicyLayer): readonly string[] {
  const key = layer.source === "corp" ? "corp.rule_files" : "profiles.rule_files";
  return (layer.settings.get(key) ?? []) as readonly string[];
}

interface Part {
  readonly name: string;
  readonly path: string;
  readonly text: string | null;
  readonly layer: PolicyLayer;
}

function readRuleFile(
  asked: LayerAsked,
  name: string,
  path: string,
): Part | { readonly faults: readonly PolicyFaultInfo[] } {
  const read = readPolicyFile(path, name, asked.uid);
  if (read.kind === "refused") return { faults: [read.fault] };
  if (read.kind === "missing") {
    return {
      faults: [fileFault(name, `Cannot read "${path}": it does not exist, and ${asked.path} names it`)],
    };
  }
  const parsed = parsedText(asked, path, read.text, true);
  if (parsed.kind === "refused") return { faults: parsed.faults.map((fault) => faultInfo(fault, name)) };
  return { name, path, text: read.text, layer: parsed.value };
}

function parsedText(
  { source, known }: LayerAsked,
  path: string,
  text: string | null,
  rulesOnly = false,
): Checked<PolicyLayer> {
  const before = known?.get(path);
  if (before !== undefined && before.text === text) return { kind: "ok", value: before.layer };
  return parseLayer(source, text ?? "", { rulesOnly });
}

/** The place of a rule is one object in one file: that tells which. */
function fileWith(parts: readonly Part[], at: Position | undefined): string | undefined {
  return parts.find(({ layer }) => layer.rules.some((rule) => at !== undefined && rule.at === at))?.name;
}

function tables(parts: readonly Part[]): Pick<LayerFiles, "fileOf" | "texts" | "parsed"> {
  return {
    fileOf: new Map(parts.flatMap(({ name, layer }) => layer.rules.map(({ id }) => [id, name] as const))),
    texts: new Map(parts.map(({ path, text }) => [path, text])),
    parsed: new Map(parts.map(({ path, text, layer }) => [path, { text, layer }])),
  };
}
