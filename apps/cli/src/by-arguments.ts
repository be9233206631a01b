import type { RuleInfo } from "@capsem/api";
import type { Client } from "@capsem/sdk";

const READS_ARGUMENTS = /\bmcp\.request\.arguments\b/;
const NAMED_SERVER = /\bmcp\.server\.name\s*==\s*(["'])(.*?)\1/g;
/** Each approval for always is one of these. */
const RULES_TOLD_MAX = 3;

/**
 * What a list of tools cannot say: which rules look at arguments, so that a call with some may meet another decision
 * than one without. Null where there is none that may be about this server.
 */
export async function byArguments({ rules }: Client, server: string): Promise<string | null> {
  const found = (await rules.list()).rules.filter((rule) => isAbout(rule, server));
  if (found.length === 0) return null;
  const told = found.slice(0, RULES_TOLD_MAX).map(({ id, action }) => `${id} (${action})`);
  const more = found.length - told.length;
  const names = [...told, ...(more > 0 ? [`${more} more`] : [])].join(", ");
  return `CALL is that of a call without arguments; these rules look at them: ${names}`;
}

function isAbout({ enabled, match }: RuleInfo, server: string): boolean {
  if (!enabled || !READS_ARGUMENTS.test(match)) return false;
  const servers = [...match.matchAll(NAMED_SERVER)].map(([, , name]) => name);
  // With alternatives it may be about others as well.
  return servers.length === 0 || servers.includes(server) || match.includes("||");
}
