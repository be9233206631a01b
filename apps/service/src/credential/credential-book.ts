import { apiFailure, type CredentialInfo, type credentialInput } from "@capsem/api";
import type * as z from "zod";
import type { ActContext } from "../act.ts";
import type { ActDraft, Boundary } from "../boundary/parts.ts";
import { CredentialFiles, type StoredCredential } from "./credential-files.ts";
import { hostPatterns, isForHost } from "./host-pattern.ts";
import { CREDENTIAL_LIMITS } from "./limits.ts";
import { readsLikeMarker } from "./marker.ts";
import type { SecretRedactor } from "./redactor.ts";
import { referenceOf } from "./reference.ts";

export interface CredentialParts {
  /** Of the home: this user's alone. */
  readonly folder: string;
  readonly redactor: SecretRedactor;
  readonly boundary: Pick<Boundary, "pass">;
  /** Of the rules in force, which a credential does not change: rows of changes say it. */
  readonly policyDigest: () => string;
  readonly nowMs: () => number;
  readonly random: (bytes: number) => Uint8Array;
}

type Given = z.output<typeof credentialInput>;

interface Credential {
  readonly info: CredentialInfo;
  readonly secret: string;
}

/**
 * Secrets that the user registered. What is registered is replaced wherever something is stored, from before the first
 * word about it. No answer, row, error or event has a secret; references, names and hosts are no secrets.
 */
export class CredentialBook {
  readonly #parts: CredentialParts;
  readonly #files: CredentialFiles;
  readonly #key: Uint8Array;
  /** By reference, in the order that they came. */
  readonly #credentials = new Map<string, Credential>();
  /** Names that are being registered, with the size of their secrets: a person may be asked meanwhile. */
  readonly #reserved = new Map<string, number>();
  readonly #listeners: ((ref: string) => void)[] = [];

  private constructor(parts: CredentialParts, files: CredentialFiles, key: Uint8Array) {
    this.#parts = parts;
    this.#files = files;
    this.#key = key;
  }

  /** Throws Failure "credential_unreadable": what cannot be read could not be kept out of logs either. */
  static async open(parts: CredentialParts): Promise<CredentialBook> {
    const files = new CredentialFiles(parts.folder);
    const { key, all } = await files.load(parts.random);
    const book = new CredentialBook(parts, files, key);
    for (const each of all.sort((a, b) => (a.created_at < b.created_at ? -1 : 1))) {
      parts.redactor.add(each.ref, each.secret);
      book.#keep(each, "file");
    }
    return book;
  }

  list(): CredentialInfo[] {
    return [...this.#credentials.values()].map(({ info }) => info);
  }

  /**
   * The secret, to be sent to that host and to nobody else. Null where no such credential is registered, or it is for
   * other hosts; one that names none is for none.
   */
  lend(ref: string, host: string): string | null {
    const found = this.#credentials.get(ref);
    return found !== undefined && isForHost(found.info.hosts, host) ? found.secret : null;
  }

  /** Told of each that is gone, at once. */
  onForgotten(listener: (ref: string) => void): void {
    this.#listeners.push(listener);
  }

  /** Throws "invalid_input", "name_taken", "quota", "disk_full" and what the boundary throws. */
  async inject(given: Given, context: ActContext): Promise<CredentialInfo> {
    const { name, secret, keep = "memory" } = given;
    const hosts = hostPatterns(given.hosts);
    checkSecret(secret);
    const ref = referenceOf(this.#key, { name, hosts, secret });
    this.#reserve(name, secret.length);
    this.#parts.redactor.add(ref, secret);
    try {
      const after = JSON.stringify({ ref, hosts, keep });
      const title = `register credential ${name}${forHosts(hosts)}`;
      const draft = this.#draft({ name, title, before: null, after, does: "register the credential" });
      return await this.#parts.boundary.pass(context, draft, async (permit) => {
        const created_at = new Date(this.#parts.nowMs()).toISOString();
        const stored: StoredCredential = { version: 1, ref, name, hosts: [...hosts], secret, created_at };
        if (keep === "file") await this.#files.write(stored);
        permit.add({ digest_after: this.#parts.policyDigest() });
        return this.#keep(stored, keep);
      });
    } finally {
      this.#reserved.delete(name);
      if (!this.#credentials.has(ref)) this.#parts.redactor.remove(ref);
    }
  }

  /** Throws "credential_not_found" and what the boundary throws. */
  async delete(ref: string, context: ActContext): Promise<void> {
    const { name, hosts, keep } = this.#get(ref).info;
    const before = JSON.stringify({ ref, hosts, keep });
    const title = `forget credential ${name}${forHosts(hosts)}`;
    const draft = this.#draft({ name, title, before, after: null, does: "forget the credential" });
    await this.#parts.boundary.pass(context, draft, async (permit) => {
      // Another call may have been as fast.
      this.#get(ref);
      if (keep === "file") await this.#files.remove(ref);
      this.#credentials.delete(ref);
      this.#parts.redactor.remove(ref);
      for (const listener of this.#listeners) listener(ref);
      permit.add({ digest_after: this.#parts.policyDigest() });
    });
  }

  #get(ref: string): Credential {
    const found = this.#credentials.get(ref);
    if (found === undefined) {
      throw apiFailure("credential_not_found", `Cannot find credential "${ref}": no such credential`);
    }
    return found;
  }

  #keep({ ref, name, hosts, secret, created_at }: StoredCredential, keep: "memory" | "file"): CredentialInfo {
    const info = { ref, name, hosts, keep, created_at };
    this.#credentials.set(ref, { info, secret });
    return info;
  }

  #reserve(name: string, characters: number): void {
    const kept = [...this.#credentials.values()];
    if (this.#reserved.has(name) || kept.some(({ info }) => info.name === name)) {
      throw apiFailure("name_taken", `Cannot register credential "${name}": there is one; delete it first`);
    }
    const { countMax, secretCharactersTotalMax } = CREDENTIAL_LIMITS;
    const count = kept.length + this.#reserved.size;
    if (count >= countMax) {
      throw apiFailure(
        "quota",
        `Cannot register credential "${name}": there are ${count}, limit ${countMax}`,
      );
    }
    const sizes = [...kept.map(({ secret }) => secret.length), ...this.#reserved.values()];
    const total = sizes.reduce((sum, size) => sum + size, characters);
    if (total > secretCharactersTotalMax) {
      const limit = `limit ${secretCharactersTotalMax}`;
      throw apiFailure(
        "quota",
        `Cannot register credential "${name}": all have ${total} characters, ${limit}`,
      );
    }
    this.#reserved.set(name, characters);
  }

  #draft({ name, title, before, after, does }: Change): ActDraft {
    const key = `credentials.${name}`;
    const digests = { digest_before: this.#parts.policyDigest(), digest_after: null };
    return {
      type: "settings.change",
      vm: null,
      fields: { "settings.key": key, "settings.source": "user" },
      ...{ title, does },
      // Of an approval: it is for this secret and these hosts, which their reference says without saying them.
      bound: () => ({ before, after }),
      row: { table: "policy_mutations", facts: { key, source: "user", before, after, ...digests } },
    };
  }
}

interface Change {
  readonly name: string;
  readonly title: string;
  readonly before: string | null;
  readonly after: string | null;
  readonly does: string;
}

/** The words never have any of it. */
function checkSecret(secret: string): void {
  if (secret.trim().length < CREDENTIAL_LIMITS.formCharactersMin) {
    const least = CREDENTIAL_LIMITS.formCharactersMin;
    throw refused(`without the space around it, it has fewer than ${least} characters`);
  }
  if (/\p{Surrogate}/u.test(secret)) throw refused("it holds half a character");
  if (readsLikeMarker(secret))
    throw refused("it reads like a reference, which stands in every redacted text");
}

function refused(why: string): Error {
  return apiFailure("invalid_input", `Cannot register the secret: ${why}`);
}

function forHosts(hosts: readonly string[]): string {
  return hosts.length === 0 ? "" : ` for ${hosts.join(", ")}`;
}
