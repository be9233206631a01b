import { missing, type ProgramName } from "./clients.ts";

declare module "vitest" {
  interface TaskMeta {
    /** Why a test was skipped; tools/test.mjs prints it. */
    skipReason?: string;
  }
}

/** Options of a test that needs these programs: it is skipped with a reason where one is missing. */
export function skipUnless(...names: readonly (ProgramName | "servers")[]): {
  skip: boolean;
  meta: { skipReason?: string };
} {
  const reason = names.map(missing).find((each) => each !== null);
  return reason === undefined || reason === null
    ? { skip: false, meta: {} }
    : { skip: true, meta: { skipReason: reason } };
}
