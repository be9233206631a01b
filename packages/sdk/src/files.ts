import type { FileInfo } from "@capsem/api";
import { type ByteInput, collect, exactly, toByteSource } from "./byte-source.ts";
import { CapsemError } from "./error.ts";
import { withIdleLimit } from "./idle.ts";
import { READ_FILE_BYTES_MAX, TRANSFER_IDLE_MS } from "./limits.ts";
import { type CallOptions, type OperationResult, operation } from "./operation.ts";
import type { Transport } from "./transport.ts";

export interface FileWindow {
  /** The file's true size, whatever window was asked. */
  readonly size: number;
  readonly body: AsyncIterable<Uint8Array>;
}

export interface ReadOptions extends CallOptions {
  readonly offset?: number;
  readonly length?: number;
}

export interface WriteOptions extends CallOptions {
  /** Permission bits of a new file. */
  readonly mode?: number;
  /** Writes a window and keeps the rest; without it the file is replaced. */
  readonly offset?: number;
  /** Bytes of a stream, where they are known: a rule may read a file's size before its bytes come. */
  readonly size?: number;
}

export interface ListOptions extends CallOptions {
  readonly depth?: number;
  readonly offset?: number;
  readonly limit?: number;
}

/** Files of a VM. Paths are relative to /workspace, or absolute in the workload root. */
export interface VmFiles {
  list(path?: string, options?: ListOptions): Promise<OperationResult<"fileList">>;
  stat(path: string, options?: CallOptions): Promise<FileInfo>;
  /** A window in memory: give `length` for what may be large. */
  read(path: string, options?: ReadOptions): Promise<{ readonly size: number; readonly bytes: Uint8Array }>;
  readStream(path: string, options?: ReadOptions): Promise<FileWindow>;
  write(path: string, source: ByteInput, options?: WriteOptions): Promise<{ readonly bytes: number }>;
  mkdir(path: string, options?: CallOptions & { readonly parents?: boolean }): Promise<void>;
  rename(path: string, to: string, options?: CallOptions): Promise<void>;
  remove(path: string, options?: CallOptions & { readonly recursive?: boolean }): Promise<void>;
}

export function vmFiles(transport: Transport, id: string): VmFiles {
  const params = { id };
  const readStream = async (path: string, { offset, length, ...options }: ReadOptions = {}) => {
    const answer = await operation(transport, "fileRead")(
      { params, query: { path, offset, length } },
      options,
    );
    const size = Number(answer.headers["x-capsem-size"] ?? Number.NaN);
    if (!Number.isSafeInteger(size)) {
      answer.cancel();
      throw new CapsemError("internal", "Cannot read file: the answer has no size");
    }
    return { size, body: withIdleLimit(answer, TRANSFER_IDLE_MS, "read") };
  };
  return {
    list: (path, { depth, offset, limit, ...options } = {}) =>
      operation(transport, "fileList")({ params, query: { path, depth, offset, limit } }, options),
    stat: (path, options) => operation(transport, "fileStat")({ params, query: { path } }, options),
    readStream,
    read: async (path, options) => {
      const { size, body } = await readStream(path, options);
      return { size, bytes: await collect(body, READ_FILE_BYTES_MAX, "read file") };
    },
    write: async (path, source, { mode, offset, size, ...options } = {}) => {
      const given = toByteSource(source);
      // What is in memory has its size.
      const isSized = size !== undefined && !(given instanceof Uint8Array) && !(given instanceof Blob);
      const body = isSized ? exactly(given, size) : given;
      return await operation(transport, "fileWrite")(
        { params, query: { path, mode, offset }, body },
        { timeoutMs: TRANSFER_IDLE_MS, ...(isSized ? { bodyBytes: size } : {}), ...options },
      );
    },
    mkdir: async (path, { parents, ...options } = {}) => {
      await operation(transport, "fileMkdir")({ params, body: { path, parents } }, options);
    },
    rename: async (path, to, options) => {
      await operation(transport, "fileRename")({ params, body: { path, to } }, options);
    },
    remove: async (path, { recursive, ...options } = {}) => {
      await operation(transport, "fileDelete")({ params, query: { path, recursive } }, options);
    },
  };
}
