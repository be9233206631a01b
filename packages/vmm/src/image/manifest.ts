import { createHash } from "node:crypto";
import { createReadStream } from "node:fs";
import { stat } from "node:fs/promises";
import { join } from "node:path";
import * as z from "zod";
import { imageFailure } from "./error.ts";

/** The files of an image besides its manifest and its marker. */
export const IMAGE_FILES = ["root.ext4", "vmlinuz", "initrd.cpio", "pristine.qcow2"] as const;
export type ImageFile = (typeof IMAGE_FILES)[number];

export const SHA256_PATTERN: RegExp = /^[0-9a-f]{64}$/;
const sha256 = z.string().regex(SHA256_PATTERN);
const fileFacts = z.strictObject({ bytes: z.int().min(1), sha256 });

const manifestFile = z.strictObject({
  format: z.literal(1),
  recipe: sha256,
  suite: z.string(),
  arch: z.string(),
  kernelVersion: z.string(),
  nodeVersion: z.string(),
  npmVersion: z.string(),
  /** `name=version`, sorted. */
  packages: z.array(z.string()).max(10_000),
  files: z.strictObject({
    "root.ext4": fileFacts,
    vmlinuz: fileFacts,
    "initrd.cpio": fileFacts,
    "pristine.qcow2": fileFacts,
  }),
});

/** What an image is made of. It holds no time and no host: the same content always has the same manifest. */
export type ImageManifest = z.infer<typeof manifestFile>;
export type FileFacts = z.infer<typeof fileFacts>;

export function encodeManifest(manifest: ImageManifest): string {
  return `${JSON.stringify(manifest, null, 2)}\n`;
}

/** An image is named by the SHA-256 of its manifest, which holds the SHA-256 of every file. */
export function digestOf(manifestText: string): string {
  return createHash("sha256").update(manifestText).digest("hex");
}

export function parseManifest(text: string): ImageManifest {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (cause) {
    throw imageFailure("image_corrupt", "Cannot read image manifest: not JSON", { cause });
  }
  const result = manifestFile.safeParse(value);
  if (result.success) return result.data;
  throw imageFailure("image_corrupt", "Cannot read image manifest: not of format 1", {
    detail: z.prettifyError(result.error),
  });
}

export async function fileFactsOf(path: string, signal?: AbortSignal): Promise<FileFacts> {
  const { size } = await stat(path);
  const hash = createHash("sha256");
  const stream = createReadStream(path, {
    highWaterMark: 1 << 20,
    ...(signal === undefined ? {} : { signal }),
  });
  for await (const chunk of stream) hash.update(chunk as Buffer);
  return { bytes: size, sha256: hash.digest("hex") };
}

/** The facts of all files of a folder, one after the other: hashing is limited by the processor. */
export async function imageFilesOf(dir: string, signal?: AbortSignal): Promise<ImageManifest["files"]> {
  return {
    "root.ext4": await fileFactsOf(join(dir, "root.ext4"), signal),
    vmlinuz: await fileFactsOf(join(dir, "vmlinuz"), signal),
    "initrd.cpio": await fileFactsOf(join(dir, "initrd.cpio"), signal),
    "pristine.qcow2": await fileFactsOf(join(dir, "pristine.qcow2"), signal),
  };
}

const STATUS_STANZA =
  /^Package: (\S+)\n(?:(?!\n\n)[\s\S])*?^Status: install ok installed\n(?:(?!\n\n)[\s\S])*?^Version: (\S+)$/m;

/** The installed packages of a dpkg status file as sorted `name=version`. */
export function parsePackageList(status: string): string[] {
  const list = status.split("\n\n").flatMap((stanza) => {
    const match = STATUS_STANZA.exec(`${stanza}\n`);
    return match === null ? [] : [`${match[1]}=${match[2]}`];
  });
  return list.sort();
}
