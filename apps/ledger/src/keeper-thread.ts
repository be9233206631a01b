import type { MessagePort } from "node:worker_threads";
import { messageOf } from "@capsem/base";
import { openCheckpointer } from "@capsem/ledger";
import { APP_LIMITS } from "./limits.ts";

export type KeeperMessage =
  | { readonly verb: "touched"; readonly ledger: string }
  /** Answered once its connection is closed. */
  | { readonly verb: "release"; readonly ledger: string; readonly id: number }
  | { readonly verb: "end"; readonly id: number };
export type KeeperAnswer = { readonly id: number } | { readonly ledger: string; readonly fault: string };

/** The thread that writes logs back into their databases, so that no commit waits for it. */
export function runKeeper({ root, port }: { root: string; port: MessagePort }): void {
  const checkpointer = openCheckpointer(root);
  const touched = new Set<string>();
  let timer: NodeJS.Timeout | null = null;
  const checkpoint = () => {
    timer = null;
    for (const ledger of touched) {
      touched.delete(ledger);
      try {
        checkpointer.checkpoint(ledger);
      } catch (thrown) {
        // The writer sees the same at its next commit, and says so to whoever waits for it.
        port.postMessage({ ledger, fault: messageOf(thrown) } satisfies KeeperAnswer);
      }
    }
  };
  port.on("message", (message: KeeperMessage) => {
    if (message.verb === "touched") {
      touched.add(message.ledger);
      timer ??= setTimeout(checkpoint, APP_LIMITS.checkpointIntervalMs);
      return;
    }
    if (message.verb === "release") {
      touched.delete(message.ledger);
      checkpointer.release(message.ledger);
    } else {
      if (timer !== null) clearTimeout(timer);
      checkpointer.close();
    }
    port.postMessage({ id: message.id } satisfies KeeperAnswer);
    if (message.verb === "end") port.close();
  });
}
