import { randomBytes } from "node:crypto";
import {
  chmodSync,
  closeSync,
  constants,
  lstatSync,
  mkdirSync,
  openSync,
  readlinkSync,
  renameSync,
  rmdirSync,
  type Stats,
  symlinkSync,
  unlinkSync,
} from "node:fs";

const OPEN_FOLDER = constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW;
const CREATE_FILE = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW;

/**
 * An open directory whose children are named relative to its descriptor, as openat does: no link can be put into
 * the way between a check and its use. Without /proc the real path stands in; what arrives from a guest cannot
 * race there, because nothing of it runs on this host. `name` is always a single path component.
 */
export class Folder {
  readonly #descriptor: number;
  readonly #base: string;

  private constructor(descriptor: number, path: string) {
    this.#descriptor = descriptor;
    this.#base = process.platform === "linux" ? `/proc/self/fd/${descriptor}` : path;
  }

  /** The caller names this path itself, so links in it are followed. */
  static open(path: string): Folder {
    return new Folder(openSync(path, constants.O_RDONLY | constants.O_DIRECTORY), path);
  }

  /** Never through a link. */
  open(name: string): Folder {
    const path = this.path(name);
    return new Folder(openSync(path, OPEN_FOLDER), path);
  }

  close(): void {
    closeSync(this.#descriptor);
  }

  stat(name: string): Stats | null {
    return lstatSync(this.path(name), { throwIfNoEntry: false }) ?? null;
  }

  readLink(name: string): string {
    return readlinkSync(this.path(name));
  }

  /** For reading; fails on a link. */
  openFile(name: string): number {
    return openSync(this.path(name), constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  }

  makeFolder(name: string, mode: number): void {
    mkdirSync(this.path(name), { mode });
  }

  /** A new file that only its writer can read, under a name that nobody else uses. */
  createTemporary(): { readonly name: string; readonly descriptor: number } {
    const name = `.capsem-${randomBytes(8).toString("hex")}`;
    return { name, descriptor: openSync(this.path(name), CREATE_FILE, 0o600) };
  }

  /** Replaces what has the name `to`, be it a link: the link itself goes, not what it names. */
  rename(from: string, folder: Folder, to: string): void {
    renameSync(this.path(from), folder.path(to));
  }

  makeLink(name: string, target: string): void {
    const temporary = `.capsem-${randomBytes(8).toString("hex")}`;
    symlinkSync(target, this.path(temporary));
    renameSync(this.path(temporary), this.path(name));
  }

  /** Only for what `stat` showed to be a file or folder: chmod follows links. */
  setMode(name: string, mode: number): void {
    chmodSync(this.path(name), mode);
  }

  removeFile(name: string): void {
    unlinkSync(this.path(name));
  }

  removeFolder(name: string): void {
    rmdirSync(this.path(name));
  }

  private path(name: string): string {
    return `${this.#base}/${name}`;
  }
}
