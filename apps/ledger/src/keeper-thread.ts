import type { MessagePort } from "node:worker_threads";
import { messageOf } from "@capsem/base";
import { openCheckpointer } from "@capsem/ledger";

export type KeeperMessage =
  | { readonly verb: "checkpoint"; readonly ledgers: readonly string[]; readonly id: number }
  /** Answered once its connection is closed. */
  | { readonly verb: "release"; readonly ledger: string; readonly id: number }
  | { readonly verb: "end"; readonly id: number };
export type KeeperAnswer = { readonly id: number } | { readonly ledger: string; readonly fault: string };

/** The thread that writes logs back into their databases, so that no commit waits for it. */
export function runKeeper({ root, port }: { root: string; port: MessagePort }): void {
  const checkpointer = openCheckpointer(root);
  const checkpoint = (ledger: string) => {
    try {
      checkpointer.checkpoint(ledger);
    } catch (thrown) {
      // The writer sees the same at its next commit, and says so to whoever waits for it.
      port.postMessage({ ledger, fault: messageOf(thrown) } satisfies KeeperAnswer);
    }
  };
  port.on("message", (message: KeeperMessage) => {
    if (message.verb === "checkpoint") for (const ledger of message.ledgers) checkpoint(ledger);
    else if (message.verb === "release") checkpointer.release(message.ledger);
    else checkpointer.close();
    port.postMessage({ id: message.id } satisfies KeeperAnswer);
    if (message.verb === "end") port.close();
  });
}
