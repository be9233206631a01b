import type { FileInfo } from "@capsem/api";
import { textOf } from "@capsem/base";
import { type ByteInput, collect } from "./byte-source.ts";
import { CapsemError } from "./error.ts";
import type { VmFiles } from "./files.ts";
import { withCode } from "./fs-error.ts";
import { Dirent, Stats } from "./fs-stats.ts";
import { LINKS_MAX, LIST_DEPTH_MAX, LIST_PAGE_ENTRIES, READ_FILE_BYTES_MAX } from "./limits.ts";
import type { CallOptions } from "./operation.ts";

type Encoding = "utf8" | "utf-8";
export type ReadFileOptions = CallOptions & { readonly encoding?: Encoding | null };
export type WriteFileOptions = CallOptions & {
  /** Of text in `data`: text is always UTF-8. */
  readonly encoding?: Encoding | null;
  /** Permission bits of a new file. */
  readonly mode?: number;
  /** "w" replaces the file at once or not at all; "a" appends. */
  readonly flag?: "w" | "a";
};
export type ReaddirOptions = CallOptions & { readonly recursive?: boolean; readonly withFileTypes?: boolean };
/** `end` is the last byte that is read, as in node:fs. */
export type ReadStreamOptions = CallOptions & { readonly start?: number; readonly end?: number };

/**
 * Files of a VM in the shape of node:fs/promises. Paths are relative to /workspace, or absolute in the workload root.
 * Errors are `CapsemError` with the `code` that node:fs has (ENOENT, EEXIST, EACCES, ENOTDIR, EISDIR, ENOTEMPTY …).
 */
export interface VmFs {
  readFile(
    path: string,
    options: Encoding | (ReadFileOptions & { readonly encoding: Encoding }),
  ): Promise<string>;
  readFile(
    path: string,
    options?: (ReadFileOptions & { readonly encoding?: null }) | null,
  ): Promise<Uint8Array>;
  /** Streams are read no faster than the VM takes them. Missing folders are made, other than in node:fs. */
  writeFile(path: string, data: ByteInput, options?: Encoding | WriteFileOptions): Promise<void>;
  /** Asks for the size, then writes there: two writers at once may overlap. */
  appendFile(path: string, data: ByteInput, options?: Encoding | WriteFileOptions): Promise<void>;
  readdir(path: string, options: ReaddirOptions & { readonly withFileTypes: true }): Promise<Dirent[]>;
  readdir(path?: string, options?: ReaddirOptions & { readonly withFileTypes?: false }): Promise<string[]>;
  /** Follows links. */
  stat(path: string, options?: CallOptions): Promise<Stats>;
  lstat(path: string, options?: CallOptions): Promise<Stats>;
  readlink(path: string, options?: CallOptions): Promise<string>;
  mkdir(path: string, options?: CallOptions & { readonly recursive?: boolean }): Promise<void>;
  /** `force`: what does not exist is removed already. An empty directory needs no `recursive`. */
  rm(
    path: string,
    options?: CallOptions & { readonly recursive?: boolean; readonly force?: boolean },
  ): Promise<void>;
  rename(from: string, to: string, options?: CallOptions): Promise<void>;
  /** Rejects when there is nothing at the path. */
  access(path: string, options?: CallOptions): Promise<void>;
  exists(path: string, options?: CallOptions): Promise<boolean>;
  /** The bytes as they come; nothing is asked before they are iterated. */
  createReadStream(path: string, options?: ReadStreamOptions): AsyncGenerator<Uint8Array>;
}

export function vmFs(files: VmFiles): VmFs {
  const lstat = (path: string, options?: CallOptions) => files.stat(path, options);
  const write = (path: string, data: ByteInput, options: WriteFileOptions) =>
    withCode("open", path, async () => {
      const { encoding: _, flag, ...rest } = options;
      const offset = flag === "a" ? { offset: await sizeOf(files, path, options) } : {};
      await files.write(path, data, { ...rest, ...offset });
    });
  const exists = async (path: string, options?: CallOptions) => {
    try {
      await followed(files, path, options);
      return true;
    } catch (thrown) {
      if (thrown instanceof CapsemError && thrown.kind === "file_not_found") return false;
      throw thrown;
    }
  };
  return {
    readFile: ((path: string, given) => readFile(files, path, optionsOf(given))) as VmFs["readFile"],
    writeFile: (path, data, options) => write(path, data, optionsOf(options)),
    appendFile: (path, data, options) => write(path, data, { ...optionsOf(options), flag: "a" }),
    readdir: ((path = ".", options: ReaddirOptions = {}) =>
      withCode("scandir", path, () => readdir(files, path, options))) as VmFs["readdir"],
    stat: (path, options) =>
      withCode("stat", path, async () => new Stats(await followed(files, path, options))),
    lstat: (path, options) => withCode("lstat", path, async () => new Stats(await lstat(path, options))),
    readlink: (path, options) =>
      withCode("readlink", path, async () => {
        const { target } = await lstat(path, options);
        if (target !== undefined) return target;
        throw new CapsemError("file_wrong_type", `Cannot read link "${path}": it is no link`);
      }),
    mkdir: (path, { recursive, ...options } = {}) =>
      withCode("mkdir", path, () => files.mkdir(path, { ...options, parents: recursive === true })),
    rm: (path, { recursive, force, ...options } = {}) =>
      withCode("rm", path, async () => {
        try {
          await files.remove(path, { ...options, recursive: recursive === true });
        } catch (thrown) {
          const isGone = thrown instanceof CapsemError && thrown.kind === "file_not_found";
          if (force !== true || !isGone) throw thrown;
        }
      }),
    rename: (from, to, options) => withCode("rename", from, () => files.rename(from, to, options)),
    access: (path, options) =>
      withCode("access", path, async () => {
        await followed(files, path, options);
      }),
    exists: (path, options) => withCode("stat", path, () => exists(path, options)),
    createReadStream: (path, options = {}) => readStream(files, path, options),
  };
}

function optionsOf<T extends object>(given: Encoding | T | null | undefined): T {
  return (typeof given === "string" ? { encoding: given } : (given ?? {})) as T;
}

function readFile(
  files: VmFiles,
  path: string,
  { encoding, ...options }: ReadFileOptions,
): Promise<string | Uint8Array> {
  return withCode("open", path, async () => {
    const { size, body } = await files.readStream(path, options);
    const bytes = await collect(limited(body, size), READ_FILE_BYTES_MAX, "read file");
    return encoding == null ? bytes : textOf(bytes);
  });
}

/** A file that is said to be too large is not read at all. */
async function* limited(body: AsyncIterable<Uint8Array>, size: number): AsyncGenerator<Uint8Array> {
  for await (const part of body) {
    if (size > READ_FILE_BYTES_MAX)
      throw new CapsemError(
        "too_large",
        `Cannot read file: it is ${size} bytes, limit ${READ_FILE_BYTES_MAX}`,
      );
    yield part;
  }
}

async function* readStream(
  files: VmFiles,
  path: string,
  { start = 0, end, ...options }: ReadStreamOptions,
): AsyncGenerator<Uint8Array> {
  const length = end === undefined ? {} : { length: Math.max(0, end - start + 1) };
  const { body } = await withCode("open", path, () =>
    files.readStream(path, { ...options, offset: start, ...length }),
  );
  yield* body;
}

async function sizeOf(files: VmFiles, path: string, { signal, timeoutMs }: CallOptions): Promise<number> {
  const options = { ...(signal && { signal }), ...(timeoutMs !== undefined && { timeoutMs }) };
  try {
    return (await followed(files, path, options)).size;
  } catch (thrown) {
    if (thrown instanceof CapsemError && thrown.kind === "file_not_found") return 0;
    throw thrown;
  }
}

/** The service describes a link itself: what it leads to is asked for, from the link's own folder. */
async function followed(files: VmFiles, path: string, options?: CallOptions): Promise<FileInfo> {
  let at = path;
  for (let links = 0; links <= LINKS_MAX; links += 1) {
    const info = await files.stat(at, options);
    if (info.type !== "symlink" || info.target === undefined) return info;
    at = info.target.startsWith("/") ? info.target : `${folderOf(at)}${info.target}`;
  }
  throw new CapsemError("file_wrong_type", `Cannot open "${path}": too many symbolic links`);
}

async function readdir(
  files: VmFiles,
  path: string,
  { recursive, withFileTypes, ...options }: ReaddirOptions,
): Promise<string[] | Dirent[]> {
  const entries = await listAll(files, path, recursive === true ? LIST_DEPTH_MAX : 1, options);
  if (withFileTypes !== true) return entries.map(({ name }) => name);
  return entries.map(({ name, info }) => {
    const folder = folderOf(name);
    const parent = folder === "" ? path : joined(path, folder.slice(0, -1));
    return new Dirent(info, parent, name.slice(folder.length));
  });
}

interface Entry {
  /** Relative to what was asked for. */
  readonly name: string;
  readonly info: FileInfo;
}

async function listAll(files: VmFiles, path: string, depth: number, options: CallOptions): Promise<Entry[]> {
  const entries: Entry[] = [];
  const folders = [""];
  for (let folder = folders.pop(); folder !== undefined; folder = folders.pop()) {
    let offset = 0;
    for (let more = true; more; ) {
      const where = { depth, offset, limit: LIST_PAGE_ENTRIES, ...options };
      const page = await files.list(folder === "" ? path : joined(path, folder), where);
      for (const info of page.entries) {
        const name = folder === "" ? info.name : `${folder}/${info.name}`;
        entries.push({ name, info });
        // One listing goes so deep and no deeper.
        const isDeepest = depth > 1 && info.name.split("/").length === depth;
        if (isDeepest && info.type === "directory") folders.push(name);
      }
      offset += page.entries.length;
      more = page.more && page.entries.length > 0;
    }
  }
  return entries;
}

/** With its slash, or nothing. */
function folderOf(path: string): string {
  return path.slice(0, path.lastIndexOf("/") + 1);
}

function joined(folder: string, name: string): string {
  return folder.endsWith("/") ? `${folder}${name}` : `${folder}/${name}`;
}
