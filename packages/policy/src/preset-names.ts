/** From the strictest to the freest. */
export const PRESET_NAMES = ["locked-down", "developer", "open"] as const;
export type PresetName = (typeof PRESET_NAMES)[number];
