import { type AskInfo, apiFailure, type ServiceEvent, type VmState } from "@capsem/api";
import { CLOSE_CODES, type FrameSocket } from "../job/frame-socket.ts";
import { EVENT_LIMITS } from "../limits.ts";
import type { Vm } from "../vm/vm.ts";
import { vmInfoOf } from "../vm/vm-info.ts";
import { EventQueue } from "./event-queue.ts";

export interface EventHubParts {
  readonly nowMs: () => number;
  readonly startedAt: string;
  readonly vms: () => readonly Vm[];
  /** Those that wait. */
  readonly asks: () => readonly AskInfo[];
}

/**
 * Tells changes of VMs and asks to everyone who follows capsem.events.v1. A change costs one JSON text and a push to
 * each queue; how fast a subscriber reads is its own affair: what its queue cannot hold it misses, and is told.
 */
export class EventHub {
  readonly #parts: EventHubParts;
  readonly #queues = new Set<EventQueue>();
  /** Of them those whose socket is open, and who show what is asked to somebody. */
  readonly #watching = new Set<EventQueue>();
  #seq = 0;
  #isClosed = false;

  constructor(parts: EventHubParts) {
    this.#parts = parts;
  }

  get subscriberCount(): number {
    return this.#queues.size;
  }

  /**
   * Of them those that have been told how things are, and see what is told now. Whoever looks for asks of its own calls
   * is none: it waits for an answer, and can give none.
   */
  get watcherCount(): number {
    return this.#watching.size;
  }

  changed(vm: Vm): void {
    this.#tell((seq, time) => ({ type: "vm", seq, time, vm: vmInfoOf(vm) }));
  }

  gone(vm: Vm, lastState: VmState): void {
    const { reason } = vm.record;
    this.#tell((seq, time) => ({ type: "vm_gone", seq, time, vm_id: vm.id, last_state: lastState, reason }));
  }

  /** An ask was made, resolved or used. */
  asked(ask: AskInfo): void {
    this.#tell((seq, time) => ({ type: "ask", seq, time, ask }));
  }

  /** Follows until the client leaves or the service stops. Throws quota before the socket is opened. */
  async follow(openSocket: () => Promise<FrameSocket>, { watches = true } = {}): Promise<void> {
    if (this.#isClosed) throw apiFailure("unavailable", "Cannot follow events: the service is stopping");
    if (this.#queues.size >= EVENT_LIMITS.subscribersMax) {
      throw apiFailure(
        "quota",
        `Cannot follow events: ${this.#queues.size} follow, limit ${EVENT_LIMITS.subscribersMax}`,
      );
    }
    const queue = new EventQueue();
    // Its place is taken before anything waits.
    this.#queues.add(queue);
    try {
      const socket = await openSocket();
      queue.start(this.#hello());
      if (watches) this.#watching.add(queue);
      if (this.#isClosed) queue.end();
      const sending = queue.sendAll(socket);
      const isIntruding = await Promise.race([sending.then(() => false), this.#clientSpoke(socket)]);
      if (isIntruding) socket.close(CLOSE_CODES.protocolError, "nothing is sent to this socket");
      else socket.close(CLOSE_CODES.serviceStops, "the service stops");
      await socket.closed;
    } finally {
      this.#watching.delete(queue);
      this.#queues.delete(queue);
      queue.end();
    }
  }

  /** Everyone is told what is queued, then let go. */
  close(): void {
    this.#isClosed = true;
    for (const queue of this.#queues) queue.end();
  }

  #hello(): string {
    return textOf({
      type: "hello",
      seq: this.#seq,
      service_started_at: this.#parts.startedAt,
      vms: this.#parts.vms().map(vmInfoOf),
      asks: [...this.#parts.asks()],
    });
  }

  #tell(make: (seq: number, time: string) => ServiceEvent): void {
    this.#seq += 1;
    if (this.#queues.size === 0) return;
    const text = textOf(make(this.#seq, new Date(this.#parts.nowMs()).toISOString()));
    for (const queue of this.#queues) queue.push(this.#seq, text);
  }

  /** Resolves true for a frame of the client's, which the protocol has none of, and false when it is gone. */
  async #clientSpoke(socket: FrameSocket): Promise<boolean> {
    return (await socket.next()) !== null;
  }
}

function textOf(event: ServiceEvent): string {
  return JSON.stringify(event);
}
