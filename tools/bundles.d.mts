export interface BundleRow {
  readonly name: string;
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
