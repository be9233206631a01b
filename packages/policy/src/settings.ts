import {
  SETTING_KEYS,
  SETTINGS,
  type SettingKey,
  type Settings,
  type SettingValue,
} from "./settings-table.ts";

export type SettingSource = "builtin" | "user" | "corp";

/** Every setting, who said it, and which ones nobody but the corporation can change. */
export interface MergedSettings {
  readonly values: Settings;
  readonly sources: ReadonlyMap<SettingKey, SettingSource>;
  readonly locked: ReadonlySet<SettingKey>;
}

type Given = ReadonlyMap<SettingKey, SettingValue>;

/** Built-in values below the user's below the corporation's. What the corporation says is locked. */
export function mergeSettings(user: Given, corp: Given): MergedSettings {
  const values: Record<string, SettingValue> = {};
  const sources = new Map<SettingKey, SettingSource>();
  for (const key of SETTING_KEYS) {
    values[key] = corp.get(key) ?? user.get(key) ?? SETTINGS[key].usual;
    sources.set(key, corp.has(key) ? "corp" : user.has(key) ? "user" : "builtin");
  }
  return Object.freeze({ values: Object.freeze(values) as Settings, sources, locked: new Set(corp.keys()) });
}
