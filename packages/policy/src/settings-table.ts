import { POLICY_LIMITS } from "./limits.ts";
import { PRESET_NAMES } from "./preset-names.ts";

/** What a setting may hold. Numbers are bounded on both sides. */
export type SettingShape =
  | { readonly kind: "int" | "number"; readonly least: number; readonly most: number; readonly step?: number }
  | { readonly kind: "flag" }
  | { readonly kind: "choice"; readonly of: readonly string[] }
  | { readonly kind: "texts"; readonly itemsMax: number };

export type SettingValue = number | boolean | string | readonly string[];

export interface SettingRow {
  readonly shape: SettingShape;
  readonly usual: SettingValue;
  readonly doc: string;
  /** Only in `corp.toml`. */
  readonly isCorpOnly?: true;
}

/** The closed list of settings, by their place in `settings.toml` and `corp.toml`. */
export const SETTINGS = {
  "profiles.preset": {
    shape: { kind: "choice", of: PRESET_NAMES },
    usual: "developer",
    doc: "built-in rules and what happens where no rule matches",
  },
  "profiles.rule_files": {
    shape: { kind: "texts", itemsMax: POLICY_LIMITS.ruleFilesMax },
    usual: [],
    doc: "more files with [profiles.rules.NAME] tables",
  },
  "corp.rule_files": {
    shape: { kind: "texts", itemsMax: POLICY_LIMITS.ruleFilesMax },
    usual: [],
    doc: "more files with [corp.rules.NAME] tables",
    isCorpOnly: true,
  },
  "asks.timeout_secs": {
    shape: { kind: "int", least: 1, most: 300 },
    usual: 300,
    doc: "longest wait of an ask that someone watches",
  },
  "asks.unattended_secs": {
    shape: { kind: "int", least: 1, most: 300 },
    usual: 30,
    doc: "wait of an ask that nobody watches",
  },
  "limits.pool_size": {
    shape: { kind: "int", least: 0, most: 16 },
    usual: 2,
    doc: "VMs of the default size that stand ready",
  },
  "limits.idle_secs": {
    shape: { kind: "number", least: 0.001, most: 31_536_000 },
    usual: 3_600,
    doc: "a temporary VM without work ends after this",
  },
  "limits.lifetime_secs": {
    shape: { kind: "number", least: 0.001, most: 31_536_000 },
    usual: 86_400,
    doc: "a temporary VM ends after this",
  },
  "limits.running_max": {
    shape: { kind: "int", least: 1, most: 256 },
    usual: 8,
    doc: "VMs that run at once",
  },
  "limits.retained_max": {
    shape: { kind: "int", least: 1, most: 4_096 },
    usual: 32,
    doc: "VMs that are kept",
  },
  "limits.memory_gib_max": {
    shape: { kind: "number", least: 0.25, most: 64 },
    usual: 4,
    doc: "largest memory of one VM",
  },
  "limits.default_cpus": {
    shape: { kind: "int", least: 1, most: 64 },
    usual: 1,
    doc: "processors of a VM where the call names none",
  },
  "limits.default_memory_gib": {
    shape: { kind: "number", least: 0.25, most: 64, step: 0.25 },
    usual: 0.5,
    doc: "memory of a VM where the call names none",
  },
  "ledger.retention_days": {
    shape: { kind: "int", least: 1, most: 3_650 },
    usual: 90,
    doc: "days that ledgers are kept",
  },
  "ledger.vm_mib_max": {
    shape: { kind: "int", least: 8, most: 65_536 },
    usual: 1_024,
    doc: "MiB of the ledger of one VM; what it cannot take is not done",
  },
  "ledger.total_mib_max": {
    shape: { kind: "int", least: 64, most: 1_048_576 },
    usual: 8_192,
    doc: "MiB of all ledgers together",
  },
  "confinement.allow_unconfined": {
    shape: { kind: "flag" },
    usual: false,
    doc: "start VMs although this machine cannot confine their processes as it should",
  },
} as const satisfies Readonly<Record<string, SettingRow>>;

export type SettingKey = keyof typeof SETTINGS;
export const SETTING_KEYS = Object.keys(SETTINGS) as readonly SettingKey[];

type Held<S extends SettingShape> = S extends { kind: "int" | "number" }
  ? number
  : S extends { kind: "flag" }
    ? boolean
    : S extends { kind: "choice"; of: readonly (infer C)[] }
      ? C
      : readonly string[];

/** Every setting with its value. */
export type Settings = { readonly [K in SettingKey]: Held<(typeof SETTINGS)[K]["shape"]> };

export function settingRow(key: string): SettingRow | undefined {
  return Object.hasOwn(SETTINGS, key) ? SETTINGS[key as SettingKey] : undefined;
}

/** A line that a file can hold: half a character cannot be written in any. */
const ONE_LINE = /^[^\p{Cc}\p{Surrogate}]{1,1024}$/u;

/** The value in its type, or what it takes instead. */
export function checkSetting(row: SettingRow, given: unknown): { value: SettingValue } | { takes: string } {
  const { shape } = row;
  switch (shape.kind) {
    case "int":
    case "number": {
      const takes = `a ${shape.kind === "int" ? "whole number" : "number"} from ${shape.least} to ${shape.most}`;
      const value = typeof given === "bigint" ? Number(given) : given;
      if (typeof value !== "number" || !(value >= shape.least && value <= shape.most)) return { takes };
      if (shape.kind === "int" && !Number.isInteger(value)) return { takes };
      if (shape.step !== undefined && value % shape.step !== 0) {
        return { takes: `${takes} in steps of ${shape.step}` };
      }
      return { value };
    }
    case "flag":
      return typeof given === "boolean" ? { value: given } : { takes: "true or false" };
    case "choice":
      return typeof given === "string" && shape.of.includes(given)
        ? { value: given }
        : { takes: `one of ${shape.of.join(", ")}` };
    case "texts": {
      const isList = Array.isArray(given) && given.length <= shape.itemsMax;
      return isList && given.every((item) => typeof item === "string" && ONE_LINE.test(item))
        ? { value: Object.freeze([...given]) }
        : { takes: `a list of at most ${shape.itemsMax} texts` };
    }
  }
}
