import { readdir, rename, rm } from "node:fs/promises";
import { join } from "node:path";
import { apiFailure, type LedgerHead, ledgerId } from "@capsem/api";
import { Failure } from "@capsem/base";
import * as z from "zod";
import { isMissing, readJsonFile, writeFileAtomic } from "../home/atomic-file.ts";
import type { HeadKey } from "./key-files.ts";

const checkpointFile = z.strictObject({
  ledger: ledgerId,
  rows: z.number().int().nonnegative(),
  head: z.string().min(1).max(256),
  signature: z.string().min(1).max(256),
  key_id: z.string().max(64),
});

const FILE_NAME = /^(.+)\.json$/;
/** What a ledger may be called where it is set aside: the ledger process says it, and it becomes part of a path. */
const ARCHIVE_NAME = /^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/;

/** checkpoints/<ledger>.json: the last head of each ledger that we signed. The ledger cannot reach it. */
export class Checkpoints {
  readonly #folder: string;
  readonly #key: HeadKey;

  constructor(folder: string, key: HeadKey) {
    this.#folder = folder;
    this.#key = key;
  }

  /** Null: the ledger has none yet. Also of a ledger that was set aside, by id@name. Throws Failure("ledger_broken") when it is not what we signed. */
  async read(ledger: string): Promise<LedgerHead | null> {
    const [id = "", archive] = ledger.split("@");
    const path = archive === undefined ? this.#path(id) : this.#archivePath(id, archive);
    const found = await readJsonFile(path).catch((thrown: unknown) => {
      if (thrown instanceof Failure) return thrown;
      throw thrown;
    });
    if (found === null) return null;
    const parsed = checkpointFile.safeParse(found);
    if (!parsed.success || parsed.data.ledger !== id) throw damaged("cannot be read");
    const { rows, head, signature, key_id } = parsed.data;
    // Another key was put in place by hand: its own signatures cannot be checked, but what they say still holds.
    const isOurs = key_id !== this.#key.keyId || this.#key.isSigned(id, { rows, head }, signature);
    if (!isOurs) throw damaged("is not what was signed");
    return { rows, head };
  }

  /** Durable when it resolves. The caller orders writes of one ledger. */
  async write(ledger: string, { rows, head }: LedgerHead, signature: string): Promise<void> {
    const text = JSON.stringify({ ledger, rows, head, signature, key_id: this.#key.keyId });
    await writeFileAtomic(this.#path(ledger), `${text}\n`);
  }

  async remove(ledger: string): Promise<void> {
    await rm(this.#path(ledger), { force: true });
  }

  /** Its ledger was set aside under that name, and the checkpoint goes with it. False: there was none. */
  async archive(ledger: string, name: string): Promise<boolean> {
    if (!ARCHIVE_NAME.test(name))
      throw apiFailure("internal", `Cannot keep the checkpoint of "${ledger}": a bad name`);
    try {
      await rename(this.#path(ledger), this.#archivePath(ledger, name));
      return true;
    } catch (thrown) {
      if (isMissing(thrown)) return false;
      throw thrown;
    }
  }

  async list(): Promise<string[]> {
    const names = (await readdir(this.#folder)).map((name) => FILE_NAME.exec(name)?.[1] ?? "");
    return names.filter((name) => ledgerId.safeParse(name).success);
  }

  #archivePath(ledger: string, name: string): string {
    return join(this.#folder, `${ledger}.${name}.archived`);
  }

  #path(ledger: string): string {
    return join(this.#folder, `${ledger}.json`);
  }
}

function damaged(state: string): Failure {
  return new Failure("ledger_broken", `its checkpoint ${state}`);
}
