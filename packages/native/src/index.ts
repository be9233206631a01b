export { builtPath } from "./addon.ts";
export { ACTS, type Act } from "./confinement.ts";
export type { NativeFailureKind } from "./error.ts";
export { type Capability, LAUNCH_SELF, LAUNCH_STEPS, type Launch, launchWords } from "./launcher.ts";
export { PASS_TIMEOUT_MS_DEFAULT, PASSED_DESCRIPTORS_MAX, PASSED_PAYLOAD_BYTES_MAX } from "./limits.ts";
export { type Credentials, loadNative, type Native, native, type Received, SEAL } from "./native.ts";
export { type Grants, libraryPaths, qemuReadPaths, qemuWritePaths } from "./qemu-confinement.ts";
export type { Waiting } from "./transfer.ts";
