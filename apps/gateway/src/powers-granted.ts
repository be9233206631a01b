import { Socket } from "node:net";
import { GATEWAY_PROFILE, openGatekeeper, prepareSeal } from "@capsem/jail";
import { native } from "@capsem/native";
import type { Powers } from "./powers.ts";

/** What `capsem-gatekeeper` leaves open for us. */
const LISTENER_FD = 3;
const PAIR_FD = 4;

/** Everything through the gatekeeper: the process can be sealed, and is before it listens. */
export function grantedPowers(): Powers {
  const addon = native();
  const gatekeeper = openGatekeeper(PAIR_FD, addon);
  const seal = prepareSeal(GATEWAY_PROFILE, {
    native: addon,
    arch: process.arch,
    selfPid: process.pid,
    otherPid: process.ppid,
    allowUnconfined: false,
  });
  return {
    listener: { kind: "descriptor", fd: LISTENER_FD },
    async confine() {
      await seal.close();
    },
    async connectService() {
      return new Socket({ fd: await gatekeeper.connectService(), readable: true, writable: true });
    },
    openToken: () => gatekeeper.openToken(),
    openLog: () => gatekeeper.openLog(),
    ready: () => gatekeeper.ready(),
    // The gatekeeper removes what it wrote, however we end.
    release: async () => undefined,
    nowMs: () => Date.now(),
    monotonicMs: () => performance.now(),
  };
}
