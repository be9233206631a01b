import { readdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { credentialHost, credentialInput, credentialName, credentialRef } from "@capsem/api";
import { Failure, messageOf } from "@capsem/base";
import * as z from "zod";
import { isMissing, readJsonFile, syncFolder, writeFileAtomic } from "../home/atomic-file.ts";
import { readRegularFile } from "../home/regular-file.ts";
import { CREDENTIAL_LIMITS } from "./limits.ts";
import { REFERENCE_KEY_BYTES, referenceOf } from "./reference.ts";

const stored = z.strictObject({
  version: z.literal(1),
  ref: credentialRef,
  name: credentialName,
  hosts: z.array(credentialHost),
  secret: credentialInput.shape.secret,
  created_at: z.string(),
});
export type StoredCredential = z.infer<typeof stored>;

const KEY_FILE = "reference.key";
const FILE = /^[0-9a-f]{64}\.json$/;

/** The folder of credentials: one file each, named after its reference, and the key that references are made with. */
export class CredentialFiles {
  readonly #folder: string;

  constructor(folder: string) {
    this.#folder = folder;
  }

  /**
   * Everything in it. A secret that cannot be read could not be kept out of logs either, so the caller does not start:
   * Failure "credential_unreadable", which says what to do.
   */
  async load(random: (bytes: number) => Uint8Array): Promise<{ key: Uint8Array; all: StoredCredential[] }> {
    const names = await readdir(this.#folder);
    // What an interrupted writer left holds a secret that nobody knows of.
    for (const name of names) if (name.endsWith(".tmp")) await rm(join(this.#folder, name), { force: true });
    const files = names.filter((name) => FILE.test(name)).sort();
    const key = (await this.#readKey()) ?? (await this.#makeKey(files.length, random));
    const all: StoredCredential[] = [];
    for (const name of files) all.push(await this.#read(name, key));
    return { key, all };
  }

  async write(credential: StoredCredential): Promise<void> {
    await writeFileAtomic(this.#pathOf(credential.ref), `${JSON.stringify(credential)}\n`);
  }

  async remove(ref: string): Promise<void> {
    await rm(this.#pathOf(ref), { force: true });
    await syncFolder(this.#folder);
  }

  async #read(name: string, key: Uint8Array): Promise<StoredCredential> {
    const path = join(this.#folder, name);
    const parsed = stored.safeParse(await readJsonFile(path).catch((thrown: unknown) => thrown));
    // Never what stands in it: it may be a secret.
    if (!parsed.success) throw unreadable(path, "it is no credential", REMEDY_FILE);
    if (fileOf(parsed.data.ref) !== name || referenceOf(key, parsed.data) !== parsed.data.ref) {
      throw unreadable(path, "it is not what was written under this name", REMEDY_FILE);
    }
    return parsed.data;
  }

  async #readKey(): Promise<Uint8Array | null> {
    const path = join(this.#folder, KEY_FILE);
    try {
      const text = (await readRegularFile(path, CREDENTIAL_LIMITS.keyFileBytesMax)).toString("latin1").trim();
      const key = /^[0-9a-f]+$/.test(text) ? Buffer.from(text, "hex") : Buffer.alloc(0);
      if (key.length !== REFERENCE_KEY_BYTES)
        throw unreadable(path, "it is no key of references", REMEDY_KEY);
      return key;
    } catch (thrown) {
      if (isMissing(thrown)) return null;
      if (thrown instanceof Failure && thrown.kind === "credential_unreadable") throw thrown;
      throw unreadable(path, messageOf(thrown), REMEDY_KEY, thrown);
    }
  }

  async #makeKey(credentials: number, random: (bytes: number) => Uint8Array): Promise<Uint8Array> {
    const path = join(this.#folder, KEY_FILE);
    if (credentials > 0) {
      const state = `it is missing, and ${credentials} credential files were made with it`;
      throw unreadable(path, state, REMEDY_KEY);
    }
    const key = random(REFERENCE_KEY_BYTES);
    await writeFileAtomic(path, `${Buffer.from(key).toString("hex")}\n`);
    return key;
  }

  #pathOf(ref: string): string {
    return join(this.#folder, fileOf(ref));
  }
}

function fileOf(ref: string): string {
  return `${ref.slice(ref.lastIndexOf(":") + 1)}.json`;
}

const REMEDY_FILE = "put back what was there, or remove it and inject the credential again";
const REMEDY_KEY =
  "put back what was there, or remove all files of its folder and inject the credentials again";

function unreadable(path: string, state: string, remedy: string, cause?: unknown): Failure {
  return new Failure("credential_unreadable", `Cannot read "${path}": ${state}; ${remedy}`, { cause });
}
