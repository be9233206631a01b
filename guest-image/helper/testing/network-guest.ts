/**
 * A Node in the workload's network namespace, as programs of a guest would be: it opens connections as it is told and
 * tells what comes. Plain JavaScript, since it runs by itself.
 */
const SCRIPT = `
const net = require("node:net");
const open = new Map();
const tell = (message) => process.connected && process.send(message, () => undefined);
const place = (target) => typeof target === "string" ? { path: target } : target;
process.on("message", ({ op, id, target, data, allowHalfOpen = true }) => {
  const socket = open.get(id);
  if (op === "open") {
    const made = net.connect({ ...place(target), allowHalfOpen });
    open.set(id, made);
    made.on("connect", () => tell({ id, kind: "connect" }));
    made.on("data", (chunk) => tell({ id, kind: "data", data: chunk }));
    made.on("end", () => tell({ id, kind: "end" }));
    made.on("error", (error) => tell({ id, kind: "error", code: error.code }));
    made.on("close", () => { open.delete(id); tell({ id, kind: "close" }); });
  } else if (socket === undefined) return;
  else if (op === "write") socket.write(data);
  else if (op === "end") socket.end();
  else if (op === "pause") socket.pause();
  else if (op === "resume") socket.resume();
  else if (op === "destroy") socket.destroy();
  else if (op === "reset") socket.resetAndDestroy();
});
process.on("disconnect", () => process.exit(0));
tell({ id: 0, kind: "ready" });
`;

import { type ChildProcess, spawn } from "node:child_process";
import { type Deferred, defer } from "@capsem/base";

/** Nobody else's here: the relay looks for a connection's process among those of its user, and not at all of them. */
const GUEST_UID = 61_234;

export const TOOLS_ADDRESS = { host: "192.0.2.1", port: 80 };
type Target = string | { readonly host: string; readonly port: number };

interface Told {
  readonly id: number;
  readonly kind: "ready" | "connect" | "data" | "end" | "error" | "close";
  readonly data?: Uint8Array;
  readonly code?: string;
}

/** One connection of a program in the guest. */
export class GuestSocket {
  readonly connected: Deferred<void> = defer<void>();
  readonly ended: Deferred<void> = defer<void>();
  readonly closed: Deferred<string> = defer<string>();
  readonly #order: (op: string, rest?: object) => void;
  #chunks: Uint8Array[] = [];
  #code = "";
  #watch: (() => void) | undefined;
  receivedBytes = 0;

  constructor(order: (op: string, rest?: object) => void) {
    this.#order = order;
  }

  write(data: Uint8Array | string): void {
    this.#order("write", { data: Buffer.from(data) });
  }
  end(): void {
    this.#order("end");
  }
  pause(): void {
    this.#order("pause");
  }
  resume(): void {
    this.#order("resume");
  }
  destroy(): void {
    this.#order("destroy");
  }
  reset(): void {
    this.#order("reset");
  }

  get received(): Buffer {
    return Buffer.concat(this.#chunks);
  }

  /** Once that many bytes have come. */
  async got(bytes: number): Promise<Buffer> {
    while (this.receivedBytes < bytes) {
      await new Promise<void>((resolve) => {
        this.#watch = resolve;
      });
    }
    return this.received;
  }

  told({ kind, data, code }: Told): void {
    if (kind === "connect") this.connected.resolve();
    else if (kind === "data" && data !== undefined) {
      this.#chunks.push(data);
      this.receivedBytes += data.length;
    } else if (kind === "end") this.ended.resolve();
    else if (kind === "error") this.#code = code ?? "";
    else if (kind === "close") this.closed.resolve(this.#code);
    this.#watch?.();
  }
}

export class NetworkGuest {
  readonly #child: ChildProcess;
  readonly #sockets = new Map<number, GuestSocket>();
  readonly #ready = defer<void>();
  readonly #socket: string;
  #last = 0;

  /** `pid` has the network namespace; `socket` leads to the relay's own. */
  constructor(pid: number, socket: string) {
    this.#socket = socket;
    const user = ["--setuid", String(GUEST_UID)];
    this.#child = spawn("nsenter", [`--net=/proc/${pid}/ns/net`, ...user, process.execPath, "-e", SCRIPT], {
      stdio: ["ignore", "inherit", "inherit", "ipc"],
      serialization: "advanced",
    });
    this.#child.on("message", (message) => {
      const told = message as Told;
      if (told.kind === "ready") this.#ready.resolve();
      this.#sockets.get(told.id)?.told(told);
    });
  }

  get ready(): Promise<void> {
    return this.#ready.promise;
  }

  /** `allowHalfOpen: false` closes its side when the other one has ended, as most programs do. */
  open(target: Target = this.#socket, allowHalfOpen = true): GuestSocket {
    this.#last += 1;
    const id = this.#last;
    const order = (op: string, rest: object = {}) => {
      if (this.#child.connected) this.#child.send({ op, id, ...rest });
    };
    const socket = new GuestSocket(order);
    this.#sockets.set(id, socket);
    order("open", { target, allowHalfOpen });
    return socket;
  }

  stop(): void {
    if (this.#child.connected) this.#child.disconnect();
  }
}
