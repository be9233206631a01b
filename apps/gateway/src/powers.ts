import type { Socket } from "node:net";

/** Where clients come from: a listening socket that was inherited, or an address to bind. */
export type Listener =
  | { readonly kind: "descriptor"; readonly fd: number }
  | { readonly kind: "address"; readonly host: "127.0.0.1"; readonly port: number };

/**
 * All that the gateway takes from the machine. Confinement is another implementation of this and nothing else:
 * behind it the gatekeeper opens what a sealed process cannot.
 */
export interface Powers {
  readonly listener: Listener;
  /** Gives up, for good, all that it does not need. Before anything is read from anybody. */
  confine(): Promise<void>;
  /** A fresh connection to the service. Rejects when the service is away. */
  connectService(): Promise<Socket>;
  /** The token file as it is now, opened for reading; the caller closes it. */
  openToken(): Promise<number>;
  /** The log file, opened for appending; the caller closes it. */
  openLog(): Promise<number>;
  /** Says that connections are welcome, once. */
  ready(port: number): Promise<void>;
  /** Takes back what `ready` left on the disk. */
  release(): Promise<void>;
  nowMs(): number;
  monotonicMs(): number;
}
