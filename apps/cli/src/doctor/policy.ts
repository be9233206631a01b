import { messageOf } from "@capsem/base";
import { CapsemError, type Client } from "@capsem/sdk";
import { faultLine } from "../error-text.ts";
import { DOCTOR_CALL_MS } from "../limits.ts";
import type { Powers } from "../powers.ts";
import { counted } from "../render.ts";
import { CLIENT_NAME } from "../version.ts";
import type { Finding } from "./findings.ts";

const FAULTS_NAMED_MAX = 3;
const limited = { timeoutMs: DOCTOR_CALL_MS };

/** Files that were changed by hand and cannot be read: what was in force before still is, and that may surprise. */
export function policy(powers: Powers): Promise<Finding> {
  return ask("policy", powers, async (client) => {
    const { policy: found } = await client.status(limited);
    const detail = `${found.preset}, ${counted(found.rules, "rule")}${found.has_corp ? ", with the corporation's" : ""}`;
    if (found.faults === 0) return { state: "good", detail, remedy: "" };
    const [settings, corp] = await Promise.all([client.settings.info(limited), client.corp.info(limited)]);
    const faults = [...settings.faults, ...corp.faults].map((fault) => faultLine(fault));
    const lines = [...new Set(faults)];
    const more = lines.length > FAULTS_NAMED_MAX ? `; and ${lines.length - FAULTS_NAMED_MAX} more` : "";
    return {
      state: "warning",
      detail: `${detail}; not taken over: ${lines.slice(0, FAULTS_NAMED_MAX).join("; ")}${more}`,
      remedy: "Mend what is named, then run ./capsem corp reload",
    };
  });
}

/** Without it nothing is done, because nothing is done unrecorded. */
export function ledger(powers: Powers): Promise<Finding> {
  return ask("ledger", powers, async (client) => {
    const { state, reason } = (await client.status(limited)).ledger;
    const why = reason === null ? "" : ` (${reason})`;
    switch (state) {
      case "ok":
        return { state: "good", detail: "takes rows", remedy: "" };
      case "starting":
        return { state: "warning", detail: `starts${why}`, remedy: "Wait a moment, and look again" };
      case "away":
        return {
          state: "missing",
          detail: `takes no rows${why}, so nothing is done`,
          remedy: "Run ./capsem host-logs ledger, which says why; ./capsem service stop starts it afresh",
        };
    }
  });
}

type Found = Omit<Finding, "name">;

/** A service that does not run starts at the next command, and says then what is wrong with its files. */
async function ask(name: string, powers: Powers, look: (client: Client) => Promise<Found>): Promise<Finding> {
  const { createNodeClient } = await import("@capsem/sdk/node");
  const client = createNodeClient({ home: powers.home, clientName: CLIENT_NAME });
  try {
    return { name, ...(await look(client)) };
  } catch (thrown) {
    if (thrown instanceof CapsemError && thrown.kind === "unavailable")
      return { name, state: "good", detail: "not looked at: the service does not run", remedy: "" };
    return { name, state: "warning", detail: `not known: ${messageOf(thrown)}`, remedy: "See service" };
  } finally {
    client.close();
  }
}
