import { LEGACY_REVISIONS, META_KEYS, MODERN_REVISIONS, negotiate } from "@capsem/mcp-protocol";
import type { Params } from "../call/params.ts";

/** What programs read of us. */
const NAME = { name: "capsem", title: "Capsem" };

const INSTRUCTIONS =
  "Tools of several servers: a tool is named SERVER__TOOL, a resource capsem://SERVER/URI. " +
  "Each call is judged by rules and recorded; a refusal names its rule and the reason, and trying again does not help.";

const CAPABILITIES = {
  tools: { listChanged: true },
  resources: { subscribe: true, listChanged: true },
  prompts: { listChanged: true },
  completions: {},
};

/** The answer to `initialize`. */
export function initializeResult(
  asked: string,
  version: string,
): { readonly revision: string; readonly text: string } {
  const revision = negotiate(asked);
  const text = JSON.stringify({
    protocolVersion: revision,
    capabilities: { ...CAPABILITIES, logging: {} },
    serverInfo: revision < TITLED_SINCE ? { name: NAME.name, version } : { ...NAME, version },
    instructions: INSTRUCTIONS,
  });
  return { revision, text };
}

const TITLED_SINCE = "2025-06-18";

/** The answer to `server/discover`. */
export function discoverResult(version: string): string {
  return JSON.stringify({
    ...{ resultType: "complete", supportedVersions: MODERN_REVISIONS, capabilities: CAPABILITIES },
    ...{ instructions: INSTRUCTIONS, ttlMs: 0, cacheScope: "private" },
    _meta: { [META_KEYS.serverInfo]: { ...NAME, version } },
  });
}

/** What of a client is shown to people: as it says itself. */
export function clientNameOf(info: Params | undefined): string | null {
  const { name, version } = info ?? {};
  if (typeof name !== "string" || name === "") return null;
  return (typeof version === "string" ? `${name} ${version}` : name).slice(0, 128);
}

export const SUPPORTED_REVISIONS: readonly string[] = [...MODERN_REVISIONS, ...LEGACY_REVISIONS];
