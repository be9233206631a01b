/**
 * What the conformance suite finds at the proxy, with its fixture server behind it as the server `fix`, that it does not
 * find at that server itself: each with the reason, which a test holds what the suite said against.
 */
import type { Revision } from "./conformance-scenarios.ts";

/** The era that the aggregator speaks to the server in. */
export const ERAS = ["legacy", "modern"] as const;
export type UpstreamEra = (typeof ERAS)[number];

export const WHY = {
  "name in a list": {
    why: "it looks for a tool by its own name in a list, where it is fix__NAME; what is written of it is compared elsewhere",
    says: /^Tool 'json_schema_2020_12_tool' not found\. Available tools: .*\bfix__json_schema_2020_12_tool\b/,
  },
  "key of a question": {
    why: "a server of the handshake asks by a request, which has no key: the proxy makes one",
    says: /^inputRequests missing expected key "user_name"$/,
  },
  "what a session can do": {
    why: "a server of the handshake is told once what its client can do, and that is the aggregator; the proxy then refuses what this one client cannot, and the tool fails",
    says: /^Server returned complete result; expected InputRequiredResult|^Server executed 'test_missing_capability' although|^Not testable: server does not list the diagnostic tool 'test_missing_capability'/,
  },
} as const;
export type Why = keyof typeof WHY;

type Found = readonly (readonly [scenario: string, check: string, why: Why])[];

const LISTED: Found = [["json-schema-2020-12", "json-schema-2020-12-tool-found", "name in a list"]];
const OTHER_ERA: Found = [
  ["input-required-result-basic-elicitation", "sep-2322-elicitation-incomplete", "key of a question"],
  ["input-required-result-capability-check", "sep-2322-respect-client-capabilities", "what a session can do"],
  ["server-stateless", "sep-2575-server-rejects-undeclared-capability", "what a session can do"],
  ["server-stateless", "sep-2575-missing-capability-http-400", "what a session can do"],
];

export const FOUND: Readonly<Record<UpstreamEra, Readonly<Record<Revision, Found>>>> = {
  legacy: { "2025-11-25": LISTED, "2026-07-28": [...LISTED, ...OTHER_ERA] },
  modern: { "2025-11-25": LISTED, "2026-07-28": LISTED },
};

/**
 * Scenarios, or single checks of one, that pass at the server itself and are not made at the proxy. Those of what is listed
 * above go on from it. And the proxy holds the connection of a call for as long as that lasts, whatever the server does with
 * its own: what the suite asks for after a cut has come before.
 */
export const NOT_MADE: Readonly<Record<Revision, readonly string[]>> = {
  "2025-11-25": ["json-schema-2020-12", "server-sse-polling:server-sse-disconnect-resume"],
  "2026-07-28": ["json-schema-2020-12", "input-required-result-basic-elicitation"],
};
