import { Failure } from "@capsem/base";
import type { FileEntry, HostBody, MuxStream } from "@capsem/wire";
import { decodeStat } from "./file-entry.ts";
import { guestFailure } from "./guest-error.ts";
import { HandedFile } from "./handed-file.ts";
import { expectReport, type HelperCall } from "./helper-call.ts";
import { HELPER_FLAGS, parseCount } from "./helper-protocol.ts";
import type { Lanes } from "./lanes.ts";
import { absolute } from "./path.ts";
import type { Transfers } from "./transfers.ts";
import type { Zygote } from "./zygote.ts";

/** Single files and directories. Paths are resolved inside the workload root by the kernel. */
export class Files {
  readonly #call: HelperCall;
  readonly #transfers: Transfers;

  readonly #sendFile: Lanes["sendFile"];

  constructor(call: HelperCall, transfers: Transfers, sendFile: Lanes["sendFile"]) {
    this.#call = call;
    this.#transfers = transfers;
    this.#sendFile = sendFile;
  }

  async stat(body: HostBody<"file_stat">): Promise<FileEntry> {
    const path = absolute(body.path);
    const flags = body.follow ? HELPER_FLAGS.follow : 0;
    return this.#call.run({ op: "stat", path, flags }, async (zygote) => {
      const { bytes } = await expectReport(zygote, "data", "read", body.path);
      return decodeStat(await zygote.reports.bytes(bytes));
    });
  }

  mkdir(body: HostBody<"file_mkdir">): Promise<void> {
    const flags = body.parents ? HELPER_FLAGS.parents : 0;
    return this.#call.simple({ op: "mkdir", path: absolute(body.path), flags }, "make directory", body.path);
  }

  rename(body: HostBody<"file_rename">): Promise<void> {
    const operation = { op: "rename", path: absolute(body.path), path2: absolute(body.to) } as const;
    return this.#call.simple(operation, "rename", body.path);
  }

  remove(body: HostBody<"file_remove">): Promise<void> {
    const flags = body.recursive ? HELPER_FLAGS.recursive : 0;
    return this.#call.simple({ op: "remove", path: absolute(body.path), flags }, "remove", body.path);
  }

  /**
   * `onSize` is called with the file's true size before its bytes go out on the stream. A Failure before that
   * is the answer; one after it resets the stream.
   */
  async read(body: HostBody<"file_read">, onSize: (bytes: number) => void): Promise<void> {
    const { id, offset, length } = body;
    const operation = {
      op: "read",
      path: absolute(body.path),
      flags: HELPER_FLAGS.handOver,
      offset,
      ...(length === undefined ? {} : { length }),
    } as const;
    await this.#call.run(operation, async (zygote) => {
      const report = await expectReport(zygote, ["size", "file"], "read", body.path);
      if (report.kind === "file") return this.#sendHanded(zygote, report, body, onSize);
      onSize(report.bytes);
      await sendAll(zygote, await this.#transfers.expect(id), async () => {
        await expectReport(zygote, "ok", "read", body.path);
      });
    });
  }

  async #sendHanded(
    zygote: Zygote,
    { bytes, fd }: { readonly bytes: number; readonly fd: number },
    { id, offset, length }: HostBody<"file_read">,
    onSize: (bytes: number) => void,
  ): Promise<void> {
    const file = HandedFile.open(zygote, fd);
    try {
      zygote.close();
      onSize(bytes);
      const stream = await this.#transfers.expect(id);
      try {
        const window = { fd: file.fd, offset, length: length ?? Number.MAX_SAFE_INTEGER - offset };
        await this.#sendFile(stream, window);
        stream.end();
      } catch (error) {
        stream.reset("internal");
        throw error;
      }
    } finally {
      file.close();
    }
  }

  /** Resolves with the count of bytes once they are in place. A whole file takes its place at once or not. */
  async write(body: HostBody<"file_write">): Promise<number> {
    const { id, offset, mode } = body;
    const flags =
      (body.make_parents ? HELPER_FLAGS.parents : 0) |
      (offset === undefined ? 0 : HELPER_FLAGS.inPlace | HELPER_FLAGS.create);
    const operation = {
      op: "write",
      path: absolute(body.path),
      flags,
      ...(offset === undefined ? {} : { offset }),
      ...(mode === undefined ? {} : { mode }),
    } as const;
    return this.#call.run(operation, async (zygote) => {
      await expectReport(zygote, "ready", "write", body.path);
      const stream = await this.#transfers.expect(id);
      try {
        await receiveAll(zygote, stream);
        if (offset === undefined) zygote.send("commit\n");
        const bytes = parseCount((await expectReport(zygote, "ok", "write", body.path)).words) ?? 0;
        stream.end();
        return bytes;
      } catch (error) {
        stream.reset("refused");
        throw interrupted(error, "write", body.path);
      }
    });
  }
}

/** Moves a helper's stdout to the stream, then asks `check` whether that was all of it. Owns the stream. */
export async function sendAll(
  zygote: Zygote,
  stream: MuxStream,
  check: () => Promise<void>,
): Promise<number> {
  let sent = 0;
  try {
    for (let chunk = await zygote.stdout.next(); chunk !== null; chunk = await zygote.stdout.next()) {
      await stream.write(chunk);
      sent += chunk.length;
    }
    await check();
    stream.end();
    return sent;
  } catch (error) {
    stream.reset("internal");
    throw error;
  }
}

/** Moves the stream to a helper's stdin and ends that; stops early when the helper takes no more. */
export async function receiveAll(zygote: Zygote, stream: MuxStream): Promise<number> {
  let received = 0;
  for (let chunk = await stream.read(); chunk !== null; chunk = await stream.read()) {
    received += chunk.length;
    if (!(await zygote.feed(chunk))) break;
  }
  zygote.stdin.end();
  return received;
}

/** The host took its stream away, or its lane was lost: nothing of the file changed. */
export function interrupted(error: unknown, verb: string, path: string): unknown {
  if (!(error instanceof Failure) || (error.kind !== "reset" && error.kind !== "lane_lost")) return error;
  return guestFailure(
    "file_failed",
    `Cannot ${verb} "${path.slice(0, 256)}": the transfer was interrupted`,
    error,
  );
}
