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

/** Without a service, what it would read is checked as a start would; it starts at the next command, or does not. */
async function unstarted(powers: Powers): Promise<Found> {
  const { checkSettings } = await import("./settings-check.ts");
  const found = await checkSettings(powers);
  switch (found.kind) {
    case "good":
      return { state: "good", detail: "settings and rules are right; the service does not run", remedy: "" };
    case "refused":
      return {
        state: "missing",
        detail: `the service does not start: ${named(found.faults)}`,
        remedy: `Mend what is named, in ${powers.home}`,
      };
    case "unknown":
      return {
        state: "warning",
        detail: `not known: the service does not run, and ${found.why}`,
        remedy: "Run ./capsem status, which starts it and says what is wrong",
      };
  }
}

function named(lines: readonly string[]): string {
  const more = lines.length > FAULTS_NAMED_MAX ? `; and ${lines.length - FAULTS_NAMED_MAX} more` : "";
  return `${lines.slice(0, FAULTS_NAMED_MAX).join("; ")}${more}`;
}

/** Files that were changed by hand and cannot be read: what was in force before still is, and that may surprise. */
export function policy(powers: Powers): Promise<Finding> {
  const look = async (client: Client): Promise<Found> => {
    const { policy: found } = await client.status(limited);
    const detail = `${found.preset}, ${counted(found.rules, "rule")}${found.has_corp ? ", with the corporation's" : ""}`;
    if (found.faults === 0) return { state: "good", detail, remedy: "" };
    const [settings, corp] = await Promise.all([client.settings.info(limited), client.corp.info(limited)]);
    const faults = [...settings.faults, ...corp.faults].map((fault) => faultLine(fault));
    const lines = [...new Set(faults)];
    return {
      state: "warning",
      detail: `${detail}; not taken over: ${named(lines)}`,
      remedy: "Mend what is named, then run ./capsem corp reload",
    };
  };
  return ask("policy", powers, look, () => unstarted(powers));
}

/** Without it nothing is done, because nothing is done unrecorded. */
export function ledger(powers: Powers): Promise<Finding> {
  const look = async (client: Client): Promise<Found> => {
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
  };
  return ask("ledger", powers, look, async () => ({
    ...{ state: "skipped", detail: "not looked at: the service does not run", remedy: "" },
  }));
}

type Found = Omit<Finding, "name">;

/** `without` is asked where no service runs. */
async function ask(
  name: string,
  powers: Powers,
  look: (client: Client) => Promise<Found>,
  without: () => Promise<Found>,
): Promise<Finding> {
  const { createNodeClient } = await import("@capsem/sdk/node");
  const client = createNodeClient({ home: powers.home, clientName: CLIENT_NAME });
  try {
    return { name, ...(await look(client)) };
  } catch (thrown) {
    if (thrown instanceof CapsemError && thrown.kind === "unavailable") return { name, ...(await without()) };
    return { name, state: "warning", detail: `not known: ${messageOf(thrown)}`, remedy: "See service" };
  } finally {
    client.close();
  }
}
