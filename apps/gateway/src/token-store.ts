import { createHash, timingSafeEqual } from "node:crypto";
import { closeSync, fstatSync, readSync, type Stats } from "node:fs";
import { Failure, messageOf } from "@capsem/base";
import type { GatewayLog } from "./gateway-log.ts";
import { AUTH_LIMITS } from "./limits.ts";
import type { Powers } from "./powers.ts";

interface HeldToken {
  readonly fd: number;
  readonly stamp: string;
  readonly digest: Buffer;
}

/** A token file of another user holds a token that this user knows. */
const OWN_UID = process.getuid?.() ?? -1;

/**
 * The current token, from a file that stays open: a replaced file has no name any more, which one `fstat` tells, so
 * that the old token dies with its file and a sealed process needs no path. A file that cannot be used means that no
 * token is right.
 */
export class TokenStore {
  /** Rises with each change. What an older generation allowed is over. */
  generation = 0;
  readonly #powers: Powers;
  readonly #log: GatewayLog;
  readonly #onChange: (generation: number) => void;
  #held: HeldToken | null = null;
  #triedMs = Number.NEGATIVE_INFINITY;
  #loading: Promise<void> | null = null;

  constructor(powers: Powers, log: GatewayLog, onChange: (generation: number) => void) {
    this.#powers = powers;
    this.#log = log;
    this.#onChange = onChange;
  }

  /** The first reading: a token file that cannot be used is a refusal to start. */
  async open(): Promise<void> {
    this.#held = await readToken(this.#powers);
  }

  /** Of the offered one if it is the token at this moment, else null. Its time does not depend on what is offered. */
  async generationOf(offered: string): Promise<number | null> {
    await this.refresh();
    const isCurrent = this.#held !== null && timingSafeEqual(digestOf(offered), this.#held.digest);
    return isCurrent ? this.generation : null;
  }

  /** Reads the file again when it is not as it was, or in any case. */
  async refresh(always = false): Promise<void> {
    const held = this.#held;
    if (!always && held !== null && stampOf(fstatSync(held.fd)) === held.stamp) return;
    this.#loading ??= this.#load().finally(() => {
      this.#loading = null;
    });
    await this.#loading;
  }

  close(): void {
    this.#hold(null);
  }

  async #load(): Promise<void> {
    const previous = this.#held;
    const nowMs = this.#powers.monotonicMs();
    if (previous === null && nowMs - this.#triedMs < AUTH_LIMITS.tokenRetryMs) return;
    this.#triedMs = nowMs;
    const fresh = await readToken(this.#powers).catch((thrown: unknown) => {
      if (previous !== null) this.#log("error", "token unusable", { cause: messageOf(thrown) });
      return null;
    });
    this.#hold(fresh);
    if (fresh !== null && previous?.digest.equals(fresh.digest) === true) return;
    if (fresh !== null) this.#log("info", "token replaced");
    this.generation += 1;
    this.#onChange(this.generation);
  }

  #hold(token: HeldToken | null): void {
    if (this.#held !== null) closeSync(this.#held.fd);
    this.#held = token;
  }
}

async function readToken(powers: Powers): Promise<HeldToken> {
  const fd = await powers.openToken();
  try {
    const stats = fstatSync(fd);
    if (!stats.isFile()) throw unusable("it is no file");
    if (stats.uid !== OWN_UID) throw unusable(`it belongs to user ${stats.uid}, and we are user ${OWN_UID}`);
    if ((stats.mode & 0o077) !== 0) throw unusable("others than its owner may read or write it");
    // One more than a token with its line end, to see that nothing follows.
    const bytes = Buffer.alloc(AUTH_LIMITS.tokenCharacters + 2);
    // From where the descriptor stands: a sealed process has no call to read elsewhere.
    const text = bytes.toString("latin1", 0, readSync(fd, bytes, 0, bytes.length, null)).replace(/\n$/, "");
    if (!TOKEN.test(text)) throw unusable("it does not hold 64 letters and digits");
    return { fd, stamp: stampOf(stats), digest: digestOf(text) };
  } catch (thrown) {
    closeSync(fd);
    throw thrown;
  }
}

const TOKEN = new RegExp(`^[A-Za-z0-9]{${AUTH_LIMITS.tokenCharacters}}$`);

function unusable(state: string): Failure {
  return new Failure("token_unusable", `Cannot use the token file: ${state}`);
}

/** The number of names is zero once the file was replaced; the time of the last change tells of every other move. */
function stampOf({ nlink, size, mtimeMs, ctimeMs, mode }: Stats): string {
  return `${nlink}:${size}:${mtimeMs}:${ctimeMs}:${mode}`;
}

function digestOf(text: string): Buffer {
  return createHash("sha256").update(text).digest();
}
