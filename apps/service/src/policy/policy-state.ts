import { createHash } from "node:crypto";
import { basename, join } from "node:path";
import type { PolicyFaultInfo } from "@capsem/api";
import { compileSnapshot, type LintFinding, type PolicySnapshot, tooManyServers } from "@capsem/policy";
import type { HomeLayout } from "../home/layout.ts";
import { faultInfo } from "./faults.ts";
import { type LayerFiles, type LayerRead, type ParsedText, readLayer } from "./layer-files.ts";
import { lintInTurns } from "./lint-in-turns.ts";
import { nextTurn } from "./next-turn.ts";
import { type FileRead, readPolicyFile } from "./policy-file.ts";

/** Where the files are. */
export interface PolicyPaths {
  readonly settings: string;
  /** The first of them that is there is the corporation's; it is never in two places. */
  readonly corp: readonly [string, ...string[]];
}

/** `machineCorp` is the machine's own `corp.toml`, of whoever administers it. */
export function policyPaths(layout: HomeLayout, machineCorp: string): PolicyPaths {
  return { settings: layout.settings, corp: [machineCorp, join(layout.home, "corp.toml")] };
}

/** Everything that the files said at one moment. Nothing in it changes. */
export interface PolicyState {
  readonly user: LayerFiles;
  readonly corp: LayerFiles;
  readonly snapshot: PolicySnapshot;
  /** What the linter has to say of the rules in force; it is asked once. */
  readonly findings: () => Promise<readonly LintFinding[]>;
}

export type StateRead = { readonly kind: "ok"; readonly state: PolicyState } | RefusedState;

export interface RefusedState {
  readonly kind: "refused";
  /** Of all files. */
  readonly faults: readonly PolicyFaultInfo[];
  /** Those of them that are of the corporation's files. */
  readonly corpFaults: readonly PolicyFaultInfo[];
  /** Files that were looked at. */
  readonly paths: readonly string[];
}

export function sha256(text: string): string {
  return createHash("sha256").update(text).digest("hex");
}

/** Of each author, what is known of files already. */
export interface KnownTexts {
  readonly user: ReadonlyMap<string, ParsedText>;
  readonly corp: ReadonlyMap<string, ParsedText>;
}

/** What the settings file is to say, with what is known of it and of the other files. */
export interface WantedSettings extends KnownTexts {
  readonly text: string;
}

/** Reads and compiles all files, or what they would say with `wanted` in the place of the settings file. */
export async function readState(
  paths: PolicyPaths,
  uid: number,
  known?: KnownTexts | WantedSettings,
): Promise<StateRead> {
  const { path, read } = readCorp(paths, uid);
  const [user, corp] = await Promise.all([
    readLayer({
      ...{ source: "user", path: paths.settings, uid },
      ...(known === undefined ? {} : { known: known.user }),
      ...(known !== undefined && "text" in known ? { read: { kind: "text", text: known.text } } : {}),
    }),
    readLayer({ source: "corp", path, uid, read, ...(known === undefined ? {} : { known: known.corp }) }),
  ]);
  await nextTurn();
  if (user.kind === "ok" && corp.kind === "ok") {
    const fault = tooManyServers(user.layer.whole.servers, corp.layer.whole.servers);
    if (fault !== undefined) {
      const faults = [faultInfo(fault, user.layer.name)];
      return { kind: "refused", faults, corpFaults: [], paths: [user, corp].flatMap(pathsOf) };
    }
    const state = stateOf(user.layer, corp.layer);
    await nextTurn();
    return { kind: "ok", state };
  }
  const [userFaults, corpFaults] = [user, corp].map((read) => (read.kind === "refused" ? read.faults : []));
  const faults = [...(corpFaults ?? []), ...(userFaults ?? [])];
  return { kind: "refused", faults, corpFaults: corpFaults ?? [], paths: [user, corp].flatMap(pathsOf) };
}

export function stateOf(user: LayerFiles, corp: LayerFiles): PolicyState {
  const snapshot = compileSnapshot({ user: user.whole, corp: corp.whole }, sha256);
  let findings: Promise<readonly LintFinding[]> | undefined;
  return Object.freeze({
    user,
    corp,
    snapshot,
    findings() {
      findings ??= lintInTurns(snapshot.rules);
      return findings;
    },
  });
}

/** The files say, to the letter, what they said. Nothing is compiled for the answer. */
export function isCurrent({ user, corp }: PolicyState, paths: PolicyPaths, uid: number): boolean {
  const { path, read } = readCorp(paths, uid);
  if (path !== corp.path || !says(read, corp.text)) return false;
  return [...user.texts, ...corp.texts].every(([path, text]) => {
    return path === corp.path || says(readPolicyFile(path, path, uid), text);
  });
}

function says(read: FileRead, text: string | null): boolean {
  return read.kind === "text" ? read.text === text : read.kind === "missing" && text === null;
}

/** Files that decide what this state is: those that are watched. */
export function filesOf({ user, corp }: PolicyState, paths: PolicyPaths): readonly string[] {
  return [...new Set([paths.settings, ...paths.corp, ...user.texts.keys(), ...corp.texts.keys()])];
}

function pathsOf(read: LayerRead): readonly string[] {
  return read.kind === "ok" ? [...read.layer.texts.keys()] : read.paths;
}

/** One that is there and cannot be used hides the next: whoever spoils the first must not get the second. */
function readCorp({ corp }: PolicyPaths, uid: number): { readonly path: string; readonly read: FileRead } {
  let [path] = corp;
  let read: FileRead = { kind: "missing" };
  for (path of corp) {
    read = readPolicyFile(path, basename(path), uid);
    if (read.kind !== "missing") break;
  }
  return { path, read };
}
