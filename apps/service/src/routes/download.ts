import { toApiFailure } from "@capsem/api";
import type { MuxStream } from "@capsem/wire";
import type { ActContext } from "../act.ts";
import type { OpenAct } from "../boundary/parts.ts";
import type { BytesAnswer } from "../http/handler.ts";
import { ByteMeter } from "../job/byte-meter.ts";
import { pipeDown } from "../job/byte-pipes.ts";
import type { OwnerRun } from "../owner/owner-run.ts";
import { useVm } from "../vm/use-vm.ts";
import type { Vm } from "../vm/vm.ts";
import type { RouteParts } from "./parts.ts";

/** Bytes of a VM that a client is to get. */
export interface OpenedDownload {
  readonly run: OwnerRun;
  readonly stream: MuxStream;
  readonly headers: Readonly<Record<string, string>>;
  /** Read of the stream already. */
  readonly peeked?: readonly Uint8Array[];
}

/** A download: errors before its first byte are HTTP errors, and the VM counts as used until its last. */
export function openDown(
  { powers }: Pick<RouteParts, "powers">,
  vm: Vm,
  context: ActContext,
  open: (run: OwnerRun) => Promise<Omit<OpenedDownload, "run">>,
): Promise<OpenedDownload> {
  return useVm(vm, powers.monotonicMs, context.signal, async (run) => ({ run, ...(await open(run)) }));
}

/** Where it is an act, that act ends with the last byte, or with the client that leaves before. */
export function downAnswer(
  { powers }: Pick<RouteParts, "powers">,
  vm: Vm,
  context: ActContext,
  { run, stream, headers, peeked = [] }: OpenedDownload,
  { act, isWhole }: { readonly act?: OpenAct; readonly isWhole?: boolean } = {},
): BytesAnswer {
  const meter = new ByteMeter(isWhole === true);
  let isPumped = false;
  context.signal.addEventListener(
    "abort",
    () => {
      if (!isPumped) act?.close("cancelled", "cancelled");
    },
    { once: true },
  );
  return {
    kind: "bytes",
    headers,
    async pump(write) {
      isPumped = true;
      const counted = async (chunk: Uint8Array) => {
        await write(chunk);
        meter.add(chunk);
      };
      try {
        await useVm(vm, powers.monotonicMs, context.signal, () => pipeDown(run, stream, counted, peeked));
        act?.add({ bytes: meter.bytes, sha256: meter.sha256() });
        act?.close("done");
      } catch (thrown) {
        stream.reset("cancelled");
        const { kind } = toApiFailure(thrown);
        act?.add({ bytes: meter.bytes });
        act?.close(context.signal.aborted || kind === "cancelled" ? "cancelled" : "failed", kind);
        throw thrown;
      }
    },
  };
}
