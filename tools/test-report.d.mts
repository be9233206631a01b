export interface Stage {
  readonly passed: number;
  readonly failures: readonly string[];
  readonly skips: readonly string[];
}

export function countStage(options: {
  readonly name: string;
  readonly report: unknown;
  readonly code: number;
  readonly root: string;
}): Stage;
export function closingLines(
  run: Stage & { readonly times: readonly { readonly name: string; readonly ms: number }[] },
): string[];
