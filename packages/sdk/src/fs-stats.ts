import type { FileInfo } from "@capsem/api";

type FileType = FileInfo["type"];
const TYPE_BITS: Readonly<Record<FileType, number>> = {
  file: 0o100000,
  directory: 0o040000,
  symlink: 0o120000,
  other: 0,
};

class Typed {
  readonly #type: FileType;

  constructor(type: FileType) {
    this.#type = type;
  }

  isFile(): boolean {
    return this.#type === "file";
  }

  isDirectory(): boolean {
    return this.#type === "directory";
  }

  isSymbolicLink(): boolean {
    return this.#type === "symlink";
  }
}

/** What node:fs tells of a file, as far as the service knows it. */
export class Stats extends Typed {
  readonly size: number;
  /** Type and permission bits. */
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
  readonly mtimeMs: number;
  readonly mtime: Date;

  constructor(info: FileInfo) {
    super(info.type);
    this.size = info.size;
    this.mode = TYPE_BITS[info.type] | info.mode;
    this.uid = info.uid;
    this.gid = info.gid;
    this.mtimeMs = info.mtime_ms;
    this.mtime = new Date(info.mtime_ms);
  }
}

/** An entry of a directory. Unlike node:fs it has its facts with it: a listing brings them anyway. */
export class Dirent extends Typed {
  readonly name: string;
  readonly parentPath: string;
  readonly stats: Stats;

  constructor(info: FileInfo, parentPath: string, name: string) {
    super(info.type);
    this.name = name;
    this.parentPath = parentPath;
    this.stats = new Stats(info);
  }
}
