import { spawn } from "node:child_process";
import {
  createReadStream,
  createWriteStream,
  lstatSync,
  mkdirSync,
  readdirSync,
  readlinkSync,
  renameSync,
  rmSync,
} from "node:fs";
import { basename, join } from "node:path";
import { pipeline } from "node:stream/promises";
import { apiFailure, type FileInfo, type RouteName } from "@capsem/api";
import type { Call, Handler } from "./fixture-handlers.ts";
import type { FixtureVm } from "./fixture-state.ts";

const ok = { ok: true };

export const FILE_HANDLERS: Partial<Record<RouteName, Handler>> = {
  fileList: (call) => {
    const folder = pathOf(call, call.query.get("path") ?? ".");
    const entries = guarded(() => readdirSync(folder).sort()).map((name) => infoOf(join(folder, name)));
    return { entries, total: entries.length, more: false };
  },
  fileStat: (call) => infoOf(asked(call)),
  fileRead: async (call) => {
    const path = asked(call);
    const info = infoOf(path);
    if (info.type !== "file") throw apiFailure("file_wrong_type", `Cannot read file: it is a ${info.type}`);
    const start = Number(call.query.get("offset") ?? 0);
    const length = call.query.get("length");
    call.response.writeHead(200, { "x-capsem-size": String(info.size) });
    const end = length === null ? {} : { end: start + Number(length) - 1 };
    await pipeline(createReadStream(path, { start, ...end }), call.response);
    return undefined;
  },
  fileWrite: async (call) => {
    const offset = call.query.get("offset");
    const place = offset === null ? {} : { flags: "r+", start: Number(offset) };
    const file = createWriteStream(asked(call), { mode: Number(call.query.get("mode") ?? 0o644), ...place });
    await pipeline(call.request, file);
    return { bytes: file.bytesWritten };
  },
  fileDelete: (call) => {
    const recursive = call.query.get("recursive") === "true";
    guarded(() => rmSync(asked(call), { recursive }));
    return ok;
  },
  fileMkdir: async (call) => {
    const { path, parents } = await call.json();
    guarded(() => mkdirSync(pathOf(call, String(path)), { recursive: parents === true }));
    return ok;
  },
  fileRename: async (call) => {
    const { path, to } = await call.json();
    guarded(() => renameSync(pathOf(call, String(path)), pathOf(call, String(to))));
    return ok;
  },
  treeRead: async (call) => {
    const tar = spawn("tar", ["-C", asked(call), "--format=pax", "-cf", "-", "."], {
      stdio: ["ignore", "pipe", "ignore"],
    });
    call.response.writeHead(200);
    await pipeline(tar.stdout, call.response);
    return undefined;
  },
  treeWrite: async (call) => {
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
  if (inner.startsWith("/") || inner.split("/").includes(".."))
    throw apiFailure("file_not_permitted", "Cannot open file: it is outside the workspace");
  return join(vm.folder, inner);
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

function guarded<T>(work: () => T): T {
  try {
    return work();
  } catch (cause) {
    const code = cause instanceof Error && "code" in cause ? String(cause.code) : "unknown";
    if (code === "ENOENT")
      throw apiFailure("file_not_found", "Cannot open file: it does not exist", { cause });
    throw apiFailure("file_failed", `Cannot use file: ${code}`, { cause });
  }
}
