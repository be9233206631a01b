import { closeSync, constants, fstatSync, openSync, readSync } from "node:fs";
import { Failure } from "@capsem/base";
import type { Powers } from "./powers.ts";

/** A text from a file, or from standard input for `-`; never waits for a pipe in a file's place that nobody writes. */
export async function readText(
  { stdin }: Pick<Powers, "stdin">,
  path: string,
  bytesMax: number,
): Promise<string> {
  const bytes = path === "-" ? await readAll(stdin.bytes(), bytesMax) : readFile(path, bytesMax);
  if (bytes.length > bytesMax)
    throw new Failure(
      "too_large",
      `Cannot read ${path === "-" ? "standard input" : JSON.stringify(path)}: it is over ${bytesMax} bytes`,
    );
  return bytes.toString("utf8");
}

async function readAll(source: AsyncIterable<Uint8Array>, bytesMax: number): Promise<Buffer> {
  const parts: Uint8Array[] = [];
  let count = 0;
  for await (const part of source) {
    parts.push(part);
    count += part.length;
    if (count > bytesMax) break;
  }
  return Buffer.concat(parts);
}

/** One byte over the limit at most: that is how it shows. */
function readFile(path: string, bytesMax: number): Buffer {
  const fd = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
  try {
    if (!fstatSync(fd).isFile())
      throw new Failure("file_failed", `Cannot read ${JSON.stringify(path)}: it is no file`);
    const bytes = Buffer.alloc(bytesMax + 1);
    let count = 0;
    for (;;) {
      const read = readSync(fd, bytes, count, bytes.length - count, null);
      count += read;
      if (read === 0 || count === bytes.length) return bytes.subarray(0, count);
    }
  } finally {
    closeSync(fd);
  }
}
