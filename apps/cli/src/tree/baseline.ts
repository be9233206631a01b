/** What was copied in, by path relative to the tree: the common past of the folder at home and the guest's. */
export type Baseline = ReadonlyMap<string, BaseEntry>;

export type BaseEntry =
  | { readonly kind: "directory"; readonly mode: number }
  | { readonly kind: "symlink"; readonly target: string }
  | {
      readonly kind: "file";
      readonly mode: number;
      readonly size: number;
      readonly mtimeMs: number;
      /** Of the bytes that were sent. */
      readonly sha256: string;
    };
