export { concat, readU32, textOf, utf8, writeU32 } from "./bytes.ts";
export { sleep, within } from "./deadline.ts";
export { type Deferred, defer, ignore } from "./deferred.ts";
export { assert, Bug, Failure, type FailureFacts, messageOf, unreachable } from "./error.ts";
export { EventIds, JOB_ID_PATTERN, NAME_PATTERN, newId, VM_ID_PATTERN } from "./ids.ts";
export { isLoopbackHost } from "./loopback-host.ts";
export { Slots } from "./slots.ts";
