import { GuestAgent } from "./agent.ts";
import { parseArguments } from "./arguments.ts";
import { createLog } from "./log.ts";
import { nodePowers, protectSelf } from "./powers-node.ts";

const places = parseArguments(process.argv.slice(2));
const powers = nodePowers(places);
const log = createLog(
  (line) => powers.writeLog(line),
  () => powers.nowMs(),
);

/** ginit starts us again; the host sees another agent instance. */
function die(what: string, thrown: unknown): void {
  const detail = thrown instanceof Error ? thrown.stack : String(thrown);
  log.error(what, { detail });
  process.exit(1);
}
process.on("uncaughtException", (error) => die("uncaught exception", error));
process.on("unhandledRejection", (reason) => die("unhandled rejection", reason));

const refused = protectSelf(places.cgroups);
if (refused.length > 0) log.warn("protections refused", { settings: refused.join(" ") });
new GuestAgent(powers, places, log).run().catch((error: unknown) => die("agent ended", error));
