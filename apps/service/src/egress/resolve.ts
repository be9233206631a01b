import { Failure, messageOf, Slots, within } from "@capsem/base";
import { addressRefusal, type Target } from "@capsem/net";
import { EGRESS_ADMISSION_LIMITS } from "./limits.ts";

/** Every address of a name, as the machine's own resolver has them. */
export type Lookup = (host: string) => Promise<readonly string[]>;

export type Resolved =
  | { readonly kind: "ok"; readonly addresses: readonly string[] }
  | { readonly kind: "refused"; readonly reason: string };

/** Names become addresses here and nowhere else, so that what is checked is what is dialled. Nothing is remembered. */
export class Resolver {
  readonly #lookup: Lookup;
  readonly #slots = new Slots(EGRESS_ADMISSION_LIMITS.lookupsMax, EGRESS_ADMISSION_LIMITS.lookupsWaitingMax);

  constructor(lookup: Lookup) {
    this.#lookup = lookup;
  }

  /** A name with one address that may not be dialled is refused as a whole. Throws "dns_failed", "cancelled". */
  async resolve(target: Target, signal: AbortSignal): Promise<Resolved> {
    const addresses = target.isAddress ? [target.host] : await this.#addressesOf(target.host, signal);
    for (const address of addresses) {
      const reason = addressRefusal(address, target);
      if (reason !== null) return { kind: "refused", reason };
    }
    return { kind: "ok", addresses: addresses.slice(0, EGRESS_ADMISSION_LIMITS.addressesMax) };
  }

  async #addressesOf(host: string, signal: AbortSignal): Promise<readonly string[]> {
    const place = this.#slots.take(signal);
    if (place === null) throw failed(host, "too many names are being looked up");
    const leave = await place;
    if (signal.aborted) {
      leave();
      throw new Failure("cancelled", `Cannot find ${host}: its caller has gone`);
    }
    // The thread that asks is taken until it knows, whoever still waits for it.
    const looked = this.#lookup(host).finally(leave);
    looked.catch(() => undefined);
    const late = () => failed(host, "the resolver does not answer");
    let found: readonly string[];
    try {
      found = await within(looked, EGRESS_ADMISSION_LIMITS.lookupTimeoutMs, late, signal);
    } catch (thrown) {
      if (thrown instanceof Failure) throw thrown;
      throw failed(host, wordsOf(thrown), thrown);
    }
    const addresses = [...new Set(found)];
    if (addresses.length === 0) throw failed(host, "it has no address");
    return addresses;
  }
}

function failed(host: string, why: string, cause?: unknown): Failure<"dns_failed"> {
  return new Failure("dns_failed", `Cannot find ${host}: ${why}`, { cause });
}

function wordsOf(thrown: unknown): string {
  const code = thrown instanceof Error && "code" in thrown ? String(thrown.code) : "";
  if (code === "ENOTFOUND" || code === "ENODATA") return "no such name";
  if (code === "EAI_AGAIN") return "the resolver has no answer just now";
  return code === "" ? messageOf(thrown) : code;
}
