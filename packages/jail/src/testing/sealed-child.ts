/**
 * A process that seals itself with a profile and then does what it is told: `sealed-child.cjs PROFILE WHEN ACT…`.
 * WHEN is `free` (never sealed), `sealed`, or `tried` (sealed, what is missing is only reported). Prints one JSON
 * object: each act's name to how it ended, "" when it was done. Started by tests alone.
 */
import { writeSync } from "node:fs";
import { native } from "@capsem/native";
import { EGRESS_PROFILE } from "../profile-egress.ts";
import { GATEWAY_PROFILE } from "../profile-gateway.ts";
import { LEDGER_PROFILE } from "../profile-ledger.ts";
import { OWNER_PROFILE } from "../profile-owner.ts";
import { AGGREGATOR_PROFILE, BUILTIN_PROFILE, PROXY_PROFILE } from "../profile-worker.ts";
import { prepareSeal } from "../seal.ts";
import { ACTS, CHILD_FILE_BYTES_MAX } from "./child-acts.ts";

const WORKERS = [PROXY_PROFILE, AGGREGATOR_PROFILE, BUILTIN_PROFILE];
const PROFILES = [OWNER_PROFILE, GATEWAY_PROFILE, LEDGER_PROFILE, ...WORKERS, EGRESS_PROFILE];
const [profileName = "", when = "", ...acts] = process.argv.slice(2);

async function main(): Promise<void> {
  const profile = PROFILES.find(({ name }) => name === profileName);
  if (profile === undefined) throw new Error(`unknown profile ${profileName}`);
  const ends: Record<string, string> = {};
  if (when !== "free") {
    const { HYPERVISOR_PID: pid, CONTROL_SOCKET: controlSocket, GRANTS_FD: grantsSocket } = process.env;
    const report = await prepareSeal(profile, {
      native: native(),
      arch: process.arch,
      selfPid: process.pid,
      otherPid: process.ppid,
      fileBytesMax: CHILD_FILE_BYTES_MAX,
      allowUnconfined: when === "tried",
    }).close({
      ...(pid === undefined ? {} : { hypervisorPid: Number(pid) }),
      ...(controlSocket === undefined ? {} : { controlSocket: Number(controlSocket) }),
      ...(grantsSocket === undefined ? {} : { grantsSocket: Number(grantsSocket) }),
    });
    ends.notes = report.notes.join("; ");
    ends.missing = report.missing.join("; ");
  }
  for (const name of acts) {
    const act = ACTS[name];
    if (act === undefined) throw new Error(`unknown act ${name}`);
    try {
      ends[name] = String((await act()) ?? "");
    } catch (thrown) {
      ends[name] = wordOf(thrown);
    }
  }
  say(ends);
  process.exit(0);
}

/** The code of Node's errors, the kind of ours. */
function wordOf(thrown: unknown): string {
  if (thrown instanceof Error && "code" in thrown) return String(thrown.code);
  return thrown instanceof Error && "kind" in thrown ? String(thrown.kind) : String(thrown);
}

/** Not by a stream, whose bytes an exit could lose. */
function say(ends: Readonly<Record<string, string>>): void {
  writeSync(1, `${JSON.stringify(ends)}\n`);
}

main().catch((thrown: unknown) => {
  say({ failed: thrown instanceof Error ? thrown.message : String(thrown) });
  process.exit(1);
});
