export { compileAllowed, compileDenied, compileFatal, type Subjects } from "./compile.ts";
export type { JailFailureKind } from "./error.ts";
export { type Gatekeeper, openGatekeeper } from "./gatekeeper.ts";
export { hypervisorFilter } from "./hypervisor-filter.ts";
export { NODE_ENVIRONMENT, nodeReadPaths, WORKER_NODE_FLAGS } from "./launch-plans.ts";
export type { Denials, Profile } from "./profile.ts";
export { EGRESS_PROFILE } from "./profile-egress.ts";
export { GATEWAY_DESCRIPTORS, GATEWAY_PROFILE } from "./profile-gateway.ts";
export { HYPERVISOR_DENIALS } from "./profile-hypervisor.ts";
export { LEDGER_PROFILE } from "./profile-ledger.ts";
export { OWNER_PROFILE } from "./profile-owner.ts";
export { AGGREGATOR_PROFILE, BUILTIN_PROFILE, PROXY_PROFILE } from "./profile-worker.ts";
export {
  prepareSeal,
  refusal,
  type Seal,
  type SealOptions,
  type SealReport,
  type SealSubjects,
  seal,
} from "./seal.ts";
