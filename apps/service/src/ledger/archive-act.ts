import { HOST_LEDGER } from "@capsem/api";
import type { ActDraft } from "../boundary/parts.ts";

const KEY = "ledger.archive";

/** To set a broken ledger aside: rules judge it as a change of the setting that it is. It frees room, and needs none. */
export function archiveDraft(ledger: string, policyDigest: string): ActDraft {
  const whose = ledger === HOST_LEDGER ? "the service's ledger" : `the ledger of VM "${ledger}"`;
  return {
    type: "settings.change",
    vm: null,
    fields: { "settings.key": KEY, "settings.source": "user" },
    title: `set ${whose} aside`,
    row: {
      table: "policy_mutations",
      facts: {
        ...{ key: KEY, source: "user", before: ledger, after: null },
        ...{ digest_before: policyDigest, digest_after: null },
      },
    },
    does: "set the ledger aside",
    bound: () => ({ ledger }),
    needsNoRoom: true,
  };
}
