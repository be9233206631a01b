import { messageOf } from "@capsem/base";
import { homeLayout } from "./home/layout.ts";
import { policyPaths } from "./policy/policy-state.ts";
import { PolicyStore } from "./policy/policy-store.ts";

export interface CheckStart {
  readonly home: string;
  /** The machine's own `corp.toml`. */
  readonly machineCorp: string;
  readonly uid: number;
  readonly say: (line: string) => void;
}

/** Whether settings and rules would let a service start; nothing is started, written or locked. Answers the exit code. */
export async function checkStart({ home, machineCorp, uid, say }: CheckStart): Promise<number> {
  const nothing = async () => undefined;
  try {
    const paths = policyPaths(homeLayout(home), machineCorp);
    await PolicyStore.open({ paths, uid, log: () => undefined, keepCopy: nothing });
    return 0;
  } catch (thrown) {
    say(`capsem service: ${messageOf(thrown)}`);
    return 1;
  }
}
