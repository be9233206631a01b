import { writeSync } from "node:fs";
import { Socket } from "node:net";
import { GATEWAY_DESCRIPTORS, GATEWAY_PROFILE, openGatekeeper, prepareSeal } from "@capsem/jail";
import { native } from "@capsem/native";
import { LOG_LIMITS } from "./limits.ts";
import type { Powers } from "./powers.ts";

/** Everything through the gatekeeper: the process can be sealed, and is before it listens. */
export function grantedPowers(): Powers {
  const addon = native();
  const gatekeeper = openGatekeeper(GATEWAY_DESCRIPTORS.pair, addon);
  const seal = prepareSeal(GATEWAY_PROFILE, {
    native: addon,
    arch: process.arch,
    selfPid: process.pid,
    otherPid: process.ppid,
    fileBytesMax: LOG_LIMITS.keptFileBytesMax,
    allowUnconfined: false,
  });
  return {
    listener: { kind: "descriptor", fd: GATEWAY_DESCRIPTORS.listener },
    async confine() {
      const { notes } = await seal.close();
      // Our error output is the log, from before the log is opened.
      if (notes.length > 0) writeSync(2, noteLine(notes));
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

function noteLine(notes: readonly string[]): string {
  const line = { time: new Date().toISOString(), level: "warning", message: "a second wall is missing" };
  return `${JSON.stringify({ ...line, notes: notes.join("; ") })}\n`;
}
