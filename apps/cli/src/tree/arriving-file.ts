import { createHash } from "node:crypto";
import { closeSync, fchmodSync, futimesSync, readSync, writeSync } from "node:fs";
import type { Folder } from "./folder.ts";
import { HELD_FILE_BYTES_MAX } from "./limits.ts";
import type { TarEntry } from "./tar-reader.ts";

/** A file's bytes before it is decided whether they are wanted: small ones in memory, others in a temporary file. */
export interface ArrivingFile {
  readonly sha256: string;
  /** Gives the bytes their name in `folder`, replacing what has it. */
  place(folder: Folder, name: string): void;
  /** Frees what was not placed; harmless afterwards. */
  drop(): void;
}

/** `near` is the folder of the bytes that do not fit in memory: on the file system of their later place. */
export async function receiveFile(near: Folder, entry: TarEntry): Promise<ArrivingFile> {
  const hash = createHash("sha256");
  if (entry.size <= HELD_FILE_BYTES_MAX) {
    const parts: Buffer[] = [];
    for await (const part of entry.body) {
      hash.update(part);
      parts.push(part);
    }
    const place = (folder: Folder, name: string) => {
      const file = new TemporaryFile(folder, entry);
      try {
        for (const part of parts) file.write(part);
        file.place(folder, name);
      } finally {
        file.drop();
      }
    };
    return { sha256: hash.digest("hex"), place, drop: () => undefined };
  }
  const file = new TemporaryFile(near, entry);
  try {
    for await (const part of entry.body) {
      hash.update(part);
      file.write(part);
    }
  } catch (thrown) {
    file.drop();
    throw thrown;
  }
  return {
    sha256: hash.digest("hex"),
    place: (folder, name) => file.place(folder, name),
    drop: () => file.drop(),
  };
}

class TemporaryFile {
  readonly #folder: Folder;
  readonly #entry: TarEntry;
  readonly #name: string;
  readonly #descriptor: number;
  #state: "open" | "placed" | "dropped" = "open";

  constructor(folder: Folder, entry: TarEntry) {
    this.#folder = folder;
    this.#entry = entry;
    const { name, descriptor } = folder.createTemporary();
    this.#name = name;
    this.#descriptor = descriptor;
  }

  write(part: Uint8Array): void {
    for (let at = 0; at < part.length; ) at += writeSync(this.#descriptor, part, at);
  }

  place(folder: Folder, name: string): void {
    const seconds = this.#entry.mtimeMs / 1000;
    futimesSync(this.#descriptor, seconds, seconds);
    fchmodSync(this.#descriptor, this.#entry.mode);
    this.#folder.rename(this.#name, folder, name);
    this.#state = "placed";
    closeSync(this.#descriptor);
  }

  drop(): void {
    if (this.#state !== "open") return;
    this.#state = "dropped";
    closeSync(this.#descriptor);
    this.#folder.removeFile(this.#name);
  }
}

export function hashOfFile(folder: Folder, name: string): string {
  const descriptor = folder.openFile(name);
  try {
    const hash = createHash("sha256");
    const part = Buffer.allocUnsafe(256 * 1024);
    for (;;) {
      const read = readSync(descriptor, part, 0, part.length, null);
      if (read === 0) return hash.digest("hex");
      hash.update(part.subarray(0, read));
    }
  } finally {
    closeSync(descriptor);
  }
}
