import { apiFailure } from "@capsem/api";
import { canonicalHost, canonicalIp } from "@capsem/policy";

/**
 * The hosts that a secret is bound to, in their one spelling, each once, in order: a host, or `*.example.com` for that
 * domain and all below it. Throws Failure "invalid_input".
 */
export function hostPatterns(hosts: readonly string[]): readonly string[] {
  return [...new Set(hosts.map(hostPattern))].sort();
}

/** Whether one of the patterns covers the host; both in their one spelling. */
export function isForHost(patterns: readonly string[], host: string): boolean {
  return patterns.some((pattern) => {
    if (!pattern.startsWith("*.")) return pattern === host;
    const domain = pattern.slice(2);
    return canonicalIp(host) === null && (host === domain || host.endsWith(`.${domain}`));
  });
}

const NAME = /^(?=.{1,253}$)([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?\.)*[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?$/;

function hostPattern(given: string): string {
  const isDomain = given.startsWith("*.");
  const name = isDomain ? given.slice(2) : given;
  // An address in brackets is as long as it is in a URL; a name with a colon has a port.
  const isPort = /:[0-9]*$/.test(name) && !name.startsWith("[") && canonicalIp(name) === null;
  if (isPort || /\]:[0-9]*$/.test(name)) throw refused(given, "a port is no part of a host");
  const host = canonicalHost(name);
  if (host === null) throw refused(given, "it is no host");
  const isAddress = canonicalIp(host) !== null;
  if (!isAddress && !NAME.test(host)) throw refused(given, "it is no host");
  if (!isDomain) return host;
  if (isAddress) throw refused(given, "nothing is below an address");
  // All of a top-level domain belongs to nobody.
  if (!host.includes(".")) throw refused(given, "a domain with all below it has at least two parts");
  return `*.${host}`;
}

function refused(given: string, why: string): Error {
  const shown = JSON.stringify(given.slice(0, 80));
  return apiFailure("invalid_input", `Cannot bind the credential to ${shown}: ${why}`);
}
