import { existsSync } from "node:fs";
import type { WorkerKind, WorkerPlan } from "@capsem/api";
import { NODE_ENVIRONMENT, WORKER_NODE_FLAGS } from "@capsem/jail";
import { launchWords } from "@capsem/native";
import type { OwnerProgram } from "../owner/owner-launch.ts";
import { WORKER_LIMITS } from "./limits.ts";

/** Where distributions keep the certificates that a machine trusts: what egress reads before it seals itself. */
const TRUSTED_CERTIFICATES = [
  "/etc/ssl/certs/ca-certificates.crt",
  "/etc/pki/tls/certs/ca-bundle.crt",
  "/etc/ssl/cert.pem",
] as const;

/**
 * The words that start a worker confined: it reads its program and has its channels, and writes nowhere. Egress alone
 * keeps the machine's network. None keeps a right of root's, whoever the service is.
 */
export function workerWords(program: OwnerProgram, plan: WorkerPlan): { file: string; args: string[] } {
  const { read, exec, write } = program.grants;
  const { service, grants, lane } = plan.descriptors;
  return launchWords({
    parentPid: program.servicePid,
    command: program.nodeBinary,
    args: [...WORKER_NODE_FLAGS, program.bundle],
    grants: { read: [...read, ...readMore(plan.kind)], exec, write },
    keepFds: [service, grants, ...(lane === undefined ? [] : [lane])],
    openFilesMax: WORKER_LIMITS.openFilesMax,
    landlock: plan.allow_unconfined ? "try" : "require",
    netNamespace: plan.kind === "egress" ? "off" : "try",
    ...(plan.kind === "egress" ? { mayDial: true } : {}),
    env: NODE_ENVIRONMENT,
    ...(program.isRoot ? { asRoot: true } : {}),
  });
}

function readMore(kind: WorkerKind): readonly string[] {
  return kind === "egress" ? TRUSTED_CERTIFICATES.filter((path) => existsSync(path)) : [];
}
