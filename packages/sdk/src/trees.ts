import { type ByteInput, toByteSource } from "./byte-source.ts";
import { withIdleLimit } from "./idle.ts";
import { TRANSFER_IDLE_MS } from "./limits.ts";
import { type CallOptions, operation } from "./operation.ts";
import type { Transport } from "./transport.ts";

/** Directories of a VM as tar streams. What comes out was made by the guest: unpack it as hostile. */
export interface VmTrees {
  read(path: string, options?: CallOptions): Promise<AsyncIterable<Uint8Array>>;
  write(path: string, tar: ByteInput, options?: CallOptions): Promise<{ readonly bytes: number }>;
}

export function vmTrees(transport: Transport, id: string): VmTrees {
  const params = { id };
  return {
    read: async (path, options) => {
      const answer = await operation(transport, "treeRead")({ params, query: { path } }, options);
      return withIdleLimit(answer, TRANSFER_IDLE_MS, "tree read");
    },
    write: async (path, tar, options) =>
      operation(transport, "treeWrite")(
        { params, query: { path }, body: toByteSource(tar) },
        { timeoutMs: TRANSFER_IDLE_MS, ...options },
      ),
  };
}
