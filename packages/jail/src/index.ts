export { compileAllowed, compileFatal, type Subjects } from "./compile.ts";
export type { JailFailureKind } from "./error.ts";
export { type Gatekeeper, openGatekeeper } from "./gatekeeper.ts";
export { NODE_ENVIRONMENT, nodeReadPaths } from "./launch-plans.ts";
export type { Profile } from "./profile.ts";
export { GATEWAY_PROFILE } from "./profile-gateway.ts";
export { OWNER_PROFILE } from "./profile-owner.ts";
export { prepareSeal, refusal, type Seal, type SealOptions, type SealReport, seal } from "./seal.ts";
