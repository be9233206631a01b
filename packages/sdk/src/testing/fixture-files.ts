import { spawn } from "node:child_process";
import {
  createReadStream,
  createWriteStream,
  existsSync,
  lstatSync,
  mkdirSync,
  openSync,
  readdirSync,
  readlinkSync,
  renameSync,
  rmdirSync,
  rmSync,
  unlinkSync,
} from "node:fs";
import { basename, dirname, join } from "node:path";
import { pipeline } from "node:stream/promises";
import { apiFailure, type ErrorKind, type FileInfo, type RouteName } from "@capsem/api";
import type { Call, Handler } from "./fixture-handlers.ts";
import type { FixtureVm } from "./fixture-state.ts";

const ok = { ok: true };

export const FILE_HANDLERS: Partial<Record<RouteName, Handler>> = {
  fileList: (call) => {
    const number = (name: string, otherwise: number) => Number(call.query.get(name) ?? otherwise);
    const [offset, limit] = [number("offset", 0), number("limit", 256)];
    const all = guarded(() => walk(pathOf(call, call.query.get("path") ?? "."), number("depth", 1), ""));
    const entries = all.slice(offset, offset + limit);
    return { entries, total: all.length, more: offset + entries.length < all.length };
  },
  fileStat: (call) => infoOf(asked(call)),
  fileRead: async (call) => {
    const path = asked(call);
    call.state.policy.checkFile("export", basename(path));
    const info = infoOf(path);
    if (info.type !== "file") throw apiFailure("file_wrong_type", 'Cannot read "x": Is a directory');
    const start = Number(call.query.get("offset") ?? 0);
    const length = call.query.get("length");
    call.response.writeHead(200, { "x-capsem-size": String(info.size) });
    const end = length === null ? {} : { end: start + Number(length) - 1 };
    await pipeline(createReadStream(path, { start, ...end }), call.response);
    return undefined;
  },
  fileWrite: async (call) => {
    const offset = call.query.get("offset");
    const path = asked(call);
    call.state.policy.checkFile("import", basename(path));
    // As the guest does it: a window is written in place, and what is not there comes into being.
    guarded(() => mkdirSync(dirname(path), { recursive: true }));
    const flags = offset === null ? "w" : existsSync(path) ? "r+" : "w";
    const fd = guarded(() => openSync(path, flags, Number(call.query.get("mode") ?? 0o644)));
    const file = createWriteStream("", { fd, start: Number(offset ?? 0) });
    await pipeline(call.request, file);
    return { bytes: file.bytesWritten };
  },
  fileDelete: (call) => {
    const recursive = call.query.get("recursive") === "true";
    const path = asked(call);
    if (recursive) guarded(() => rmSync(path, { recursive }));
    else guarded(() => (lstatSync(path).isDirectory() ? rmdirSync(path) : unlinkSync(path)));
    return ok;
  },
  fileMkdir: async (call) => {
    const { path, parents } = await call.json();
    call.state.policy.checkFile("create", basename(String(path)));
    guarded(() => mkdirSync(pathOf(call, String(path)), { recursive: parents === true }));
    return ok;
  },
  fileRename: async (call) => {
    const { path, to } = await call.json();
    guarded(() => renameSync(pathOf(call, String(path)), pathOf(call, String(to))));
    return ok;
  },
  treeRead: async (call) => {
    call.state.policy.checkFile("export", null);
    const tar = spawn("tar", ["-C", asked(call), "--format=pax", "-cf", "-", "."], {
      stdio: ["ignore", "pipe", "ignore"],
    });
    call.response.writeHead(200);
    await pipeline(tar.stdout, call.response);
    return undefined;
  },
  treeWrite: async (call) => {
    call.state.policy.checkFile("import", null);
    const folder = asked(call);
    mkdirSync(folder, { recursive: true });
    const tar = spawn("tar", ["-C", folder, "-xpf", "-"], { stdio: ["pipe", "ignore", "ignore"] });
    const ended = new Promise<number | null>((resolve) => tar.once("close", resolve));
    let bytes = 0;
    call.request.on("data", (part: Buffer) => {
      bytes += part.length;
    });
    await pipeline(call.request, tar.stdin);
    if ((await ended) !== 0) throw apiFailure("file_failed", "Cannot unpack tree: the tar stream is broken");
    return { bytes };
  },
};

function asked(call: Call): string {
  return pathOf(call, call.query.get("path") ?? "");
}

/** /workspace is the VM's folder; nothing else of a guest exists here. */
function pathOf(call: Call, path: string): string {
  const vm: FixtureVm = call.state.get(call.params.id ?? "");
  const inner = path === "/workspace" ? "." : path.replace(/^\/workspace\//, "");
  const whole = join(vm.folder, inner);
  if (inner.startsWith("/") || (whole !== vm.folder && !whole.startsWith(`${vm.folder}/`)))
    throw apiFailure("file_not_permitted", "Cannot open file: it is outside the workspace");
  return whole;
}

function infoOf(path: string): FileInfo {
  const stat = guarded(() => lstatSync(path));
  const type = stat.isFile()
    ? "file"
    : stat.isDirectory()
      ? "directory"
      : stat.isSymbolicLink()
        ? "symlink"
        : "other";
  return {
    name: basename(path),
    type,
    size: stat.size,
    mode: stat.mode & 0o7777,
    mtime_ms: Math.trunc(stat.mtimeMs),
    uid: 1000,
    gid: 1000,
    ...(type === "symlink" ? { target: readlinkSync(path) } : {}),
  };
}

/** Relative names in the order of their bytes, as the guest gives them. */
function walk(folder: string, depth: number, prefix: string): FileInfo[] {
  const infos: FileInfo[] = [];
  for (const name of readdirSync(folder)) {
    const info = infoOf(join(folder, name));
    infos.push({ ...info, name: `${prefix}${name}` });
    if (info.type === "directory" && depth > 1)
      infos.push(...walk(join(folder, name), depth - 1, `${prefix}${name}/`));
  }
  return infos.sort((a, b) => Buffer.compare(Buffer.from(a.name), Buffer.from(b.name)));
}

const KINDS: Readonly<Record<string, readonly [ErrorKind, string]>> = {
  ENOENT: ["file_not_found", "it does not exist"],
  EEXIST: ["file_exists", "File exists"],
  ENOTEMPTY: ["file_exists", "Directory not empty"],
  ENOTDIR: ["file_wrong_type", "Not a directory"],
  EISDIR: ["file_wrong_type", "Is a directory"],
  EACCES: ["file_not_permitted", "Permission denied"],
};

function guarded<T>(work: () => T): T {
  try {
    return work();
  } catch (cause) {
    const code = cause instanceof Error && "code" in cause ? String(cause.code) : "unknown";
    const [kind, words] = KINDS[code] ?? ["file_failed", code];
    throw apiFailure(kind, `Cannot use file: ${words}`, { cause });
  }
}
