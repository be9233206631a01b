import type { HostBody } from "@capsem/wire";
import { interrupted, receiveAll, sendAll } from "./files.ts";
import { guestFailure } from "./guest-error.ts";
import type { HelperCall } from "./helper-call.ts";
import { HELPER_FLAGS } from "./helper-protocol.ts";
import { absolute } from "./path.ts";
import type { Tool } from "./tool.ts";
import type { Transfers } from "./transfers.ts";

/** pax, and its extra headers only where a name needs one: times are whole seconds in both directions. */
const CREATE = [
  "tar",
  "--create",
  // The home side takes no hard links: each name comes as a file of its own.
  "--hard-dereference",
  "--file=-",
  "--format=pax",
  "--pax-option=delete=atime,delete=ctime,delete=mtime",
  "--numeric-owner",
  "--sort=name",
  "--one-file-system",
  ".",
] as const;

/** GNU tar itself refuses `..`, strips a leading `/`, and delays links that lead out. */
const EXTRACT = [
  "tar",
  "--extract",
  "--file=-",
  "--preserve-permissions",
  "--no-same-owner",
  "--delay-directory-restore",
  "--warning=no-timestamp",
  "--warning=no-unknown-keyword",
] as const;

/** Directory trees as tar streams, by the workload's own tar with the user's rights. */
export class Trees {
  readonly #call: HelperCall;
  readonly #tool: Tool;
  readonly #transfers: Transfers;

  constructor(call: HelperCall, tool: Tool, transfers: Transfers) {
    this.#call = call;
    this.#tool = tool;
    this.#transfers = transfers;
  }

  /**
   * `onStart` is called once bytes come, before they go out on the stream. A Failure before that is the
   * answer; one after it resets the stream.
   */
  async out(body: HostBody<"tree_out">, onStart: () => void): Promise<void> {
    const path = absolute(body.path);
    await this.#tool.run(CREATE, path, async (zygote, end) => {
      zygote.stdin.end();
      const first = await zygote.stdout.next();
      if (first === null) throw (await end()).failure("read tree", body.path);
      onStart();
      const stream = await this.#transfers.expect(body.id);
      try {
        await stream.write(first);
      } catch (error) {
        stream.reset("internal");
        throw error;
      }
      await sendAll(zygote, stream, async () => {
        const ended = await end();
        // 1: a file changed while it was read. Its bytes of that moment are in the stream.
        if (ended.code > 1) throw ended.failure("read tree", body.path);
      });
    });
  }

  /** Resolves with the count of bytes once the tree is in place. */
  async in(body: HostBody<"tree_in">): Promise<number> {
    const path = absolute(body.path);
    const flags = HELPER_FLAGS.parents;
    await this.#call.simple({ op: "mkdir", path, flags }, "make directory", body.path);
    return this.#tool.run(EXTRACT, path, async (zygote, end) => {
      const discarded = zygote.stdout.discard();
      const stream = await this.#transfers.expect(body.id);
      try {
        const bytes = await receiveAll(zygote, stream);
        await discarded;
        const ended = await end();
        if (ended.code !== 0) throw ended.failure("write tree", body.path);
        await drain(stream);
        stream.end();
        return bytes;
      } catch (error) {
        stream.reset("refused");
        throw interrupted(error, "write tree", body.path);
      }
    });
  }
}

/** tar stops reading at the archive's end; padding may follow. What is not padding is the host's fault. */
async function drain(stream: Parameters<typeof receiveAll>[1]): Promise<void> {
  let bytes = 0;
  for (let chunk = await stream.read(); chunk !== null; chunk = await stream.read()) {
    bytes += chunk.length;
    if (bytes > 1_048_576) {
      throw guestFailure("invalid_input", "Cannot write tree: bytes follow the end of the archive");
    }
  }
}
