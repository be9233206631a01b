import { addressKind, type HttpHeader, headerProblem, type Target } from "@capsem/net";
import { canonicalHost } from "@capsem/policy";
import { formsOf } from "../credential/forms.ts";

export interface Lender {
  /** The secret of a credential that is for this host; null where there is none. */
  lend(ref: string, host: string): string | null;
}

export type Lent =
  | {
      readonly kind: "ok";
      readonly headers: HttpHeader[];
      /** Every form in which a server may give one back: what is looked for in its answers. */
      readonly secrets: string[];
      /** The references that were replaced. */
      readonly refs: readonly string[];
    }
  | { readonly kind: "refused"; readonly reason: string };

const REFERENCES = /credential:blake3:[0-9a-f]{64}/g;

/**
 * The headers that a declaration asks for, with secrets where it has references. A secret goes to a host that its
 * credential is for, over TLS or within this machine, and in no other case.
 */
export function lentHeaders(
  declared: ReadonlyMap<string, string>,
  target: Target,
  addresses: readonly string[],
  credentials: Lender,
): Lent {
  const headers: HttpHeader[] = [];
  const secrets: string[] = [];
  const refs: string[] = [];
  for (const [name, value] of declared) {
    const found = value.match(REFERENCES) ?? [];
    const [ref] = found;
    if (found.length > 1) return refused(`its header ${name} names more than one credential`);
    if (ref === undefined) {
      headers.push([name, value]);
      continue;
    }
    if (!isPrivateWay(target, addresses)) {
      return refused(`its header ${name} would send a secret in the clear; declare it with https`);
    }
    const secret = credentials.lend(ref, canonicalHost(target.host) ?? target.host);
    if (secret === null) {
      return refused(
        `the credential in its header ${name} is not registered, or is for other hosts than ${target.host}`,
      );
    }
    const full: HttpHeader = [name, value.replace(ref, () => secret)];
    // The words would have the secret.
    if (headerProblem([full]) !== null)
      return refused(`the credential in its header ${name} fits into no header`);
    headers.push(full);
    secrets.push(...formsOf(secret), ...passwordForms(value, secret));
    refs.push(ref);
  }
  return { kind: "ok", headers, secrets, refs };
}

/** A header of Basic has name and password in Base64: a server knows them without. */
function passwordForms(value: string, secret: string): string[] {
  if (!/^basic /i.test(value)) return [];
  const pair = Buffer.from(secret, "base64").toString();
  return [pair, pair.slice(pair.indexOf(":") + 1)].flatMap((text) => [...formsOf(text)]);
}

function isPrivateWay({ scheme, isGranted }: Target, addresses: readonly string[]): boolean {
  return scheme === "https" || (isGranted && addresses.every((each) => addressKind(each) === "loopback"));
}

function refused(reason: string): Lent {
  return { kind: "refused", reason };
}
