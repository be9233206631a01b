import { createReadStream, type Stats } from "node:fs";
import { mkdir, open, readdir, rename, rm, stat } from "node:fs/promises";
import { basename, join } from "node:path";
import { Failure } from "@capsem/base";
import type { Handler, StreamHandler } from "@capsem/rpc";
import { encodeMessagePack, type MuxStream } from "@capsem/wire";

interface FileParams {
  readonly path: string;
  readonly to?: string;
  readonly offset?: number;
  readonly length?: number;
  readonly parents?: boolean;
  readonly recursive?: boolean;
}

/** Files of a fake VM, in its folder. A path that starts with "!kind" fails with that kind. */
export function fakeFileMethods(folder: string): Record<string, Handler> {
  const at = locate(folder);
  return {
    "file.stat": (raw) => guarded(async () => entryOf(at(raw), await stat(at(raw)))),
    "file.list": (raw) =>
      guarded(async () => {
        const names = (await readdir(at(raw))).sort();
        const entries = await Promise.all(
          names.map(async (name) => entryOf(name, await stat(join(at(raw), name)))),
        );
        return { entries, total: entries.length, more: false };
      }),
    "file.mkdir": (raw) =>
      guarded(async () => {
        await mkdir(at(raw), { recursive: (raw as FileParams).parents ?? false });
        return {};
      }),
    "file.rename": (raw) =>
      guarded(async () => {
        await rename(at(raw), at({ path: (raw as FileParams).to ?? "" }));
        return {};
      }),
    "file.remove": (raw) =>
      guarded(async () => {
        await rm(at(raw), { recursive: (raw as FileParams).recursive ?? false });
        return {};
      }),
  };
}

export function fakeFileStreams(folder: string): Record<string, StreamHandler> {
  const at = locate(folder);
  const read: StreamHandler = (raw) =>
    guarded(async () => {
      const { offset = 0, length } = raw as FileParams;
      const { size } = await stat(at(raw));
      const end = length === undefined ? {} : { end: offset + length - 1 };
      return {
        result: { size },
        async run(stream) {
          for await (const chunk of createReadStream(at(raw), { start: offset, ...end })) {
            await stream.write(chunk as Buffer);
          }
        },
      };
    });
  const write: StreamHandler = async (raw) => ({ result: {}, run: (stream) => receive(at(raw), stream) });
  return {
    "file.read": read,
    "file.write": write,
    "tree.read": async (raw, context) => ({ ...(await read(raw, context)), result: {} }),
    "tree.write": write,
  };
}

async function receive(path: string, stream: MuxStream): Promise<void> {
  if (basename(path).startsWith("!")) {
    const error = { kind: basename(path).slice(1), message: "Cannot write: scripted" };
    return stream.write(encodeMessagePack({ error }));
  }
  const file = await open(path, "w");
  let bytes = 0;
  try {
    for (let chunk = await stream.read(); chunk !== null; chunk = await stream.read()) {
      await file.write(chunk);
      bytes += chunk.length;
    }
  } finally {
    await file.close();
  }
  await stream.write(encodeMessagePack({ bytes }));
}

function locate(folder: string): (raw: unknown) => string {
  return (raw) => join(folder, "guest", (raw as FileParams).path);
}

async function guarded<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (thrown) {
    const code = thrown instanceof Error && "code" in thrown ? thrown.code : "";
    if (code === "ENOENT") throw new Failure("file_not_found", "Cannot find the file: there is none");
    if (code === "EEXIST") throw new Failure("file_exists", "Cannot make the file: there is one");
    throw thrown;
  }
}

function entryOf(path: string, facts: Stats) {
  return {
    name: basename(path),
    type: facts.isDirectory() ? ("directory" as const) : ("file" as const),
    size: facts.size,
    mode: facts.mode & 0o7777,
    mtime_ms: Math.round(facts.mtimeMs),
    uid: facts.uid,
    gid: facts.gid,
  };
}
