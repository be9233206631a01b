/**
 * A process that seals itself with a profile and then does what it is told: `sealed-child.cjs PROFILE WHEN ACT…`.
 * WHEN is `free` (never sealed), `sealed`, or `tried` (sealed, what is missing is only reported). Prints one JSON
 * object: each act's name to how it ended, "" when it was done. Started by tests alone.
 */
import { native } from "@capsem/native";
import { GATEWAY_PROFILE } from "../profile-gateway.ts";
import { OWNER_PROFILE } from "../profile-owner.ts";
import { prepareSeal } from "../seal.ts";
import { ACTS } from "./child-acts.ts";

const [profileName = "", when = "", ...acts] = process.argv.slice(2);

async function main(): Promise<void> {
  const profile = profileName === "gateway" ? GATEWAY_PROFILE : OWNER_PROFILE;
  const ends: Record<string, string> = {};
  if (when !== "free") {
    const pid = process.env.HYPERVISOR_PID;
    const report = await prepareSeal(profile, {
      native: native(),
      arch: process.arch,
      selfPid: process.pid,
      otherPid: process.ppid,
      allowUnconfined: when === "tried",
    }).close(pid === undefined ? undefined : Number(pid));
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
  process.stdout.write(`${JSON.stringify(ends)}\n`, () => process.exit(0));
}

/** The code of Node's errors, the kind of ours. */
function wordOf(thrown: unknown): string {
  if (thrown instanceof Error && "code" in thrown) return String(thrown.code);
  return thrown instanceof Error && "kind" in thrown ? String(thrown.kind) : String(thrown);
}

main().catch((thrown: unknown) => {
  process.stdout.write(
    `${JSON.stringify({ failed: thrown instanceof Error ? thrown.message : String(thrown) })}\n`,
    () => process.exit(1),
  );
});
