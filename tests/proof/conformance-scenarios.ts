/**
 * Which parts of the conformance suite say something about capsem-mcp, and which cannot. The suite calls fixed names
 * of a fixture server: a check that needs one of those, or a capability that capsem-mcp does not declare, is left out
 * here with its reason, and a test holds what the suite said against that reason.
 */
export const REVISIONS = ["2025-11-25", "2026-07-28"] as const;
export type Revision = (typeof REVISIONS)[number];

/** Why a check is left out, and what the suite then says about it. */
export const REASONS = {
  "fixture tool": {
    why: "it calls a tool, by name or by annotation, that the suite's fixture server has",
    says: /^(Failed: |JSON-RPC error: )?(MCP error -32602: )?Unknown tool: |^Server returned JSON-RPC error |not found\. Available tools|^Not testable: server /,
  },
  "after a fixture tool": {
    why: "it goes on from what a fixture tool would have answered",
    says: /^Expected InputRequiredResult|^Prerequisite failed/,
  },
  completions: { why: "capsem-mcp completes nothing", says: /Method not found/ },
  logging: { why: "capsem-mcp sends no log messages", says: /Method not found/ },
  prompts: { why: "capsem-mcp has no prompts", says: /Method not found/ },
  resources: {
    why: "capsem-mcp has no resources",
    says: /Method not found|^Expected error code -32602 \(Invalid Params\), got -32601|^Error data\.uri is undefined/,
  },
  sessions: {
    why: "it recommends what only a server with sessions has; the HTTP face here keeps none",
    says: /^$|^Server did not send (priming event|retry field)/,
  },
} as const;
export type Reason = keyof typeof REASONS;

/** Scenarios that need nothing of the fixture, with the least number of checks that each must pass. */
export const GENERIC: Readonly<Record<Revision, Readonly<Record<string, number>>>> = {
  "2025-11-25": {
    "dns-rebinding-protection": 2,
    ping: 2,
    "server-initialize": 2,
    "tools-list": 3,
  },
  "2026-07-28": {
    caching: 4,
    "dns-rebinding-protection": 2,
    "http-header-validation": 14,
    "input-required-result-unsupported-methods": 2,
    "input-required-result-validate-input": 3,
    "sep-2164-resource-not-found": 2,
    "server-sse-multiple-streams": 1,
    "server-stateless": 24,
    "tools-list": 4,
  },
};

/** Scenario, check, reason. */
export const LEFT_OUT: Readonly<Record<Revision, readonly (readonly [string, string, Reason])[]>> = {
  "2025-11-25": [
    ["completion-complete", "completion-complete", "completions"],
    ["elicitation-sep1034-defaults", "elicitation-sep1034-general", "fixture tool"],
    ["elicitation-sep1330-enums", "elicitation-sep1330-general", "fixture tool"],
    ["json-schema-2020-12", "json-schema-2020-12-tool-found", "fixture tool"],
    ["logging-set-level", "logging-set-level", "logging"],
    ["prompts-get-embedded-resource", "prompts-get-embedded-resource", "prompts"],
    ["prompts-get-simple", "prompts-get-simple", "prompts"],
    ["prompts-get-with-args", "prompts-get-with-args", "prompts"],
    ["prompts-get-with-image", "prompts-get-with-image", "prompts"],
    ["prompts-list", "prompts-list", "prompts"],
    ["resources-list", "resources-list", "resources"],
    ["resources-read-binary", "resources-read-binary", "resources"],
    ["resources-read-text", "resources-read-text", "resources"],
    ["resources-subscribe", "resources-subscribe", "resources"],
    ["resources-templates-read", "resources-templates-read", "resources"],
    ["resources-unsubscribe", "resources-unsubscribe", "resources"],
    ["server-sse-multiple-streams", "server-sse-multiple-streams-session", "sessions"],
    ["server-sse-polling", "server-sse-polling-session", "sessions"],
    ["server-sse-polling", "server-sse-priming-event", "sessions"],
    ["server-sse-polling", "server-sse-retry-field", "sessions"],
    ["tools-call-audio", "tools-call-audio", "fixture tool"],
    ["tools-call-elicitation", "tools-call-elicitation", "fixture tool"],
    ["tools-call-embedded-resource", "tools-call-embedded-resource", "fixture tool"],
    ["tools-call-error", "tools-call-error", "fixture tool"],
    ["tools-call-image", "tools-call-image", "fixture tool"],
    ["tools-call-mixed-content", "tools-call-mixed-content", "fixture tool"],
    ["tools-call-sampling", "tools-call-sampling", "fixture tool"],
    ["tools-call-simple-text", "tools-call-simple-text", "fixture tool"],
    ["tools-call-with-logging", "tools-call-with-logging", "logging"],
    ["tools-call-with-progress", "tools-call-with-progress", "fixture tool"],
  ],
  "2026-07-28": [
    ["caching", "sep-2549-prompts-list-caching-hints", "prompts"],
    ["caching", "sep-2549-resources-list-caching-hints", "resources"],
    ["caching", "sep-2549-resources-templates-list-caching-hints", "resources"],
    ["completion-complete", "completion-complete", "completions"],
    ["http-custom-header-server-validation", "sep-2243-server-no-xmcp-tool", "fixture tool"],
    ["http-custom-header-server-validation", "sep-2243-server-decode-base64", "fixture tool"],
    ["http-custom-header-server-validation", "sep-2243-server-validate-param-match", "fixture tool"],
    ["http-custom-header-server-validation", "sep-2243-server-reject-invalid-param-chars", "fixture tool"],
    ["http-custom-header-server-validation", "sep-2243-server-reject-param-mismatch", "fixture tool"],
    ["input-required-result-basic-elicitation", "sep-2322-elicitation-incomplete", "fixture tool"],
    ["input-required-result-basic-list-roots", "sep-2322-list-roots-incomplete", "fixture tool"],
    ["input-required-result-basic-sampling", "sep-2322-sampling-incomplete", "fixture tool"],
    ["input-required-result-capability-check", "sep-2322-respect-client-capabilities", "fixture tool"],
    ["input-required-result-ignore-extra-params", "sep-2322-ignore-unexpected-params", "fixture tool"],
    ["input-required-result-missing-input-response", "sep-2322-missing-response-rerequests", "fixture tool"],
    ["input-required-result-multi-round", "sep-2322-multi-round-r1", "after a fixture tool"],
    ["input-required-result-multiple-input-requests", "sep-2322-multiple-inputs-incomplete", "fixture tool"],
    ["input-required-result-non-tool-request", "sep-2322-non-tool-incomplete", "prompts"],
    ["input-required-result-request-state", "sep-2322-request-state-incomplete", "fixture tool"],
    ["input-required-result-result-type", "sep-2322-result-type-included", "fixture tool"],
    ["input-required-result-tampered-state", "sep-2322-reject-tampered-state", "after a fixture tool"],
    ["json-schema-2020-12", "json-schema-2020-12-tool-found", "fixture tool"],
    ["prompts-get-embedded-resource", "prompts-get-embedded-resource", "prompts"],
    ["prompts-get-simple", "prompts-get-simple", "prompts"],
    ["prompts-get-with-args", "prompts-get-with-args", "prompts"],
    ["prompts-get-with-image", "prompts-get-with-image", "prompts"],
    ["prompts-list", "prompts-list", "prompts"],
    ["resources-list", "resources-list", "resources"],
    ["resources-read-binary", "resources-read-binary", "resources"],
    ["resources-read-text", "resources-read-text", "resources"],
    ["resources-templates-read", "resources-templates-read", "resources"],
    ["sep-2164-resource-not-found", "sep-2164-error-code", "resources"],
    ["sep-2164-resource-not-found", "sep-2164-data-uri", "resources"],
    ["server-stateless", "sep-2575-server-rejects-undeclared-capability", "fixture tool"],
    ["server-stateless", "sep-2575-missing-capability-http-400", "fixture tool"],
    ["server-stateless", "sep-2575-http-server-no-independent-requests-on-stream", "fixture tool"],
    ["server-stateless", "sep-2575-server-no-log-without-loglevel", "fixture tool"],
    ["tools-call-audio", "tools-call-audio", "fixture tool"],
    ["tools-call-embedded-resource", "tools-call-embedded-resource", "fixture tool"],
    ["tools-call-error", "tools-call-error", "fixture tool"],
    ["tools-call-image", "tools-call-image", "fixture tool"],
    ["tools-call-mixed-content", "tools-call-mixed-content", "fixture tool"],
    ["tools-call-simple-text", "tools-call-simple-text", "fixture tool"],
    ["tools-call-with-progress", "tools-call-with-progress", "fixture tool"],
  ],
};
