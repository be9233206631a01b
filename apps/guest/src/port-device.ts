import { spawn } from "node:child_process";
import { closeSync, constants, openSync, statSync } from "node:fs";
import { connect, Socket, type SocketConstructorOpts } from "node:net";
import { Duplex, type Readable } from "node:stream";
import { sleep } from "@capsem/base";
import { GUEST_LIMITS } from "./limits.ts";
import { isSystemError } from "./plain-file.ts";

/**
 * Keeps a lane's port open: opens it, gives its bytes to `onOpen`, and opens it again when it ended. Where
 * the place is a socket (tests) it is connected; a device is opened.
 */
export async function keepPortOpen<P extends Port>(
  open: () => P,
  onOpen: (port: P) => void,
  onFailure: (error: unknown) => void,
): Promise<never> {
  let lastCode: string | undefined;
  for (;;) {
    try {
      const port = open();
      const closed = new Promise<void>((resolve) => port.output.once("close", () => resolve()));
      onOpen(port);
      await closed;
      lastCode = undefined;
    } catch (error) {
      if (!isSystemError(error)) throw error;
      // The same failure again and again is told once.
      if (error.code !== lastCode) onFailure(error);
      lastCode = error.code;
    }
    await sleep(GUEST_LIMITS.portRetryMs);
  }
}

/** Where a lane's bytes come from and go to. Destroying `output` ends both. */
export interface Port {
  readonly input: Readable;
  readonly output: Duplex;
}

export function openPort(path: string): Port {
  if (statSync(path).isSocket()) return both(connect(path));
  return both(openAsPipe(path) ?? openWithCat(path));
}

function both(port: Duplex): Port {
  return { input: port, output: port };
}

interface PipeHandle {
  open(fd: number): number | undefined;
}
interface PipeBinding {
  readonly Pipe: new (type: number) => PipeHandle;
  readonly constants: { readonly SOCKET: number };
}

/**
 * A virtio port polls like a socket, but Node's public classes refuse a character device; its own pipe handle
 * takes it. Undefined where this Node does not give it out.
 */
export function openAsPipe(path: string): Socket | undefined {
  const { binding } = process as unknown as { binding?: (name: string) => unknown };
  if (binding === undefined) return undefined;
  const { Pipe, constants: types } = binding.call(process, "pipe_wrap") as PipeBinding;
  const handle = new Pipe(types.SOCKET);
  const fd = openSync(path, constants.O_RDWR | constants.O_NONBLOCK);
  const refused = handle.open(fd);
  if (typeof refused === "number" && refused !== 0) {
    closeSync(fd);
    return undefined;
  }
  // The type of the option leaves the handle out.
  return new Socket({ handle, readable: true, writable: true } as SocketConstructorOpts);
}

/** The way that needs public interfaces only: two `cat` that share the descriptor. */
export function openWithCat(path: string): Duplex {
  const fd = openSync(path, constants.O_RDWR);
  const reader = spawn("/bin/cat", [], { stdio: [fd, "pipe", "ignore"] });
  const writer = spawn("/bin/cat", [], { stdio: ["pipe", fd, "ignore"] });
  closeSync(fd);
  const duplex = Duplex.from({ readable: reader.stdout, writable: writer.stdin });
  const end = () => {
    reader.kill("SIGKILL");
    writer.kill("SIGKILL");
  };
  const fail = () => {
    end();
    duplex.destroy();
  };
  reader.once("error", fail);
  writer.once("error", fail);
  writer.once("exit", fail);
  duplex.once("close", end);
  return duplex;
}
