export function hostTests(root: string): {
  readonly unit: string[];
  readonly process: string[];
  readonly alone: string[];
};
