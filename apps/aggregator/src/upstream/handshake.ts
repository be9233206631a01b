import { LEGACY_REVISIONS, membersOf } from "@capsem/mcp-protocol";
import { CLIENT_INFO } from "../version.ts";
import { quoted, rude } from "./failure.ts";
import { capabilitiesText } from "./params.ts";
import { factsOf, textOf } from "./server-facts.ts";
import type { ServerFacts } from "./session.ts";

/** All that somebody behind us may be able to answer: who really can is said call by call. */
const ALL = { sampling: true, elicitation: true, roots: true };
const UNION = capabilitiesText(ALL, '{"listChanged":true}');

export const INITIALIZE_PARAMS = `{"protocolVersion":"${LEGACY_REVISIONS[0]}","capabilities":${UNION},"clientInfo":${CLIENT_INFO}}`;

/** Of the result of `initialize`. Throws "upstream_failed" for a revision that we do not speak. */
export function handshakeFacts(resultText: string): ServerFacts {
  const members = membersOf(resultText);
  const protocol = textOf(members.get("protocolVersion"));
  const known: readonly string[] = LEGACY_REVISIONS;
  if (protocol === null || !known.includes(protocol)) {
    throw rude(`speaks no revision of the protocol that is known (${quoted(protocol ?? "none")})`);
  }
  return factsOf(members, members.get("serverInfo"), protocol, "legacy");
}
