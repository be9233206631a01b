export interface BundleRow {
  readonly name: string;
  /** What its program is called, where that is not `NAME-main`. */
  readonly main?: string;
  /** Makes the code caches of a bundle in `out`, where it has any. */
  readonly warm?: (out: string) => Promise<void>;
}

export const BUNDLES: readonly BundleRow[];
export const TOOLS: readonly BundleRow[];
export function writeBundle(
  root: string,
  out: string,
  row: BundleRow,
): Promise<{ inputs: Record<string, unknown> }>;
