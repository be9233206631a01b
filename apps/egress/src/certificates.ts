import { createSecureContext, rootCertificates, type SecureContext } from "node:tls";

/** Where distributions keep the certificates that a machine trusts; the first one that is there counts. */
export const CERTIFICATE_FILES: readonly string[] = [
  "/etc/ssl/certs/ca-certificates.crt",
  "/etc/pki/tls/certs/ca-bundle.crt",
  "/etc/ssl/cert.pem",
];

/**
 * Who is trusted: those whom Node brings, and those whom this machine trusts beside them. Made once, before the seal:
 * it takes as long as dozens of connections.
 */
export function trustedContext(machine: string | null): SecureContext {
  const ca = machine === null ? [...rootCertificates] : [...rootCertificates, machine];
  return createSecureContext({ ca });
}
