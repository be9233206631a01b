/**
 * Whether a URL's `hostname` is of this machine alone. The URL parser has brought addresses into one form before; a
 * name that only begins like one, as `127.example.org`, is somebody else's.
 */
export function isLoopbackHost(hostname: string): boolean {
  return hostname === "localhost" || hostname === "[::1]" || /^127(?:\.[0-9]{1,3}){3}$/.test(hostname);
}
