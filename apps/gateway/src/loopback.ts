/** The names of this machine's loopback in a Host header or an origin: exact, so that no look-alike passes. */
const HOSTS = ["127.0.0.1", "localhost", "[::1]"] as const;
const ORIGIN = /^http:\/\/(127\.0\.0\.1|localhost|\[::1\])(?::([1-9][0-9]{0,4}))?$/;

/** A page of another site whose name was bound to 127.0.0.1 still names itself here. */
export function isOwnHost(host: string | undefined, port: number): boolean {
  return HOSTS.some((name) => host === `${name}:${port}`);
}

/** The origin as a browser writes it: scheme, host, port; no path, no credentials. `null` is any sandboxed page. */
export function isLoopbackOrigin(origin: string): boolean {
  const match = ORIGIN.exec(origin);
  return match !== null && Number(match[2] ?? 80) <= 65_535;
}
