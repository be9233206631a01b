/**
 * The private contracts between the service and the processes that carry tool calls, and between those (decision 0021).
 * The service is the host role on every channel of its own; on a pair between two others the one nearer to the guest is.
 * JSON texts are passed as text: who need not look into one does not.
 */
import * as z from "zod";
import { mcpServerName } from "./mcp-schema.ts";

export const WORKER_KINDS = ["proxy", "aggregator", "builtin", "egress"] as const;
export type WorkerKind = (typeof WORKER_KINDS)[number];
/** The scope of what belongs to no VM, and of its ledger. */
export const HOST_SCOPE = "host";

const ok = z.strictObject({});
/** A VM's id, `host`, or for egress `all`. */
const scope = z.string().min(1).max(64);
const json = z.string();
const headers = z.array(z.tuple([z.string(), z.string()]));

/** A VM as rules see it. */
const ruledVm = z.strictObject({
  id: z.string(),
  name: z.string().nullable(),
  image: z.string().nullable(),
});

/** First line on a worker's stdin. Descriptor numbers are its own. */
export const workerPlan = z.strictObject({
  kind: z.enum(WORKER_KINDS),
  scope,
  /** Null for the host and for all but a proxy. */
  vm: ruledVm.nullable(),
  descriptors: z.strictObject({
    /** rpc with the service. */
    service: z.number().int(),
    /** SEQPACKET: grants. */
    grants: z.number().int(),
    /** The traffic lane, of a VM's proxy. */
    lane: z.number().int().exactOptional(),
  }),
  lane: z
    .strictObject({ marker: z.string().regex(/^[0-9a-f]{64}$/), generation: z.number().int().positive() })
    .exactOptional(),
  allow_unconfined: z.boolean(),
});
export type WorkerPlan = z.infer<typeof workerPlan>;

/**
 * What a SEQPACKET message says of the one descriptor that rides on it, as JSON of at most 512 bytes. The receiver runs
 * rpc on it. A higher generation of the same kind and name replaces the older one, whose calls have failed.
 *
 * A proxy gets `aggregator` and `builtin`, each of these `proxy` and `egress`, egress one `client` for each of these,
 * named `aggregator:SCOPE` or `builtin:SCOPE`.
 */
export const workerGrant = z.strictObject({
  kind: z.enum(["aggregator", "builtin", "proxy", "egress", "client"]),
  name: z.string().max(128),
  generation: z.number().int().positive(),
});
export type WorkerGrant = z.infer<typeof workerGrant>;
export const WORKER_GRANT_BYTES_MAX = 512;

/** What every worker tells the service. */
export const WORKER_METHODS = {
  "worker.ready": {
    params: z.strictObject({ unconfined: z.array(z.string()), notes: z.array(z.string()) }),
    result: ok,
  },
} as const;

/** A server as a proxy and an aggregator know it: no header, no credential, no grant of an address. */
const proxyServer = z.strictObject({
  name: mcpServerName,
  url: z.string(),
  transport: z.enum(["auto", "http", "sse"]),
  protocol: z.enum(["auto", "legacy", "modern"]),
  timeout_ms: z.number().int(),
});
export type ProxyServer = z.infer<typeof proxyServer>;

/** What is known of a tool's definition. `pinned`: what the server says now is what was approved. */
const pin = z.strictObject({
  server: mcpServerName,
  tool: z.string(),
  state: z.enum(["pinned", "changed", "new", "gone"]),
  /** Of the definition that was approved; null where none was. */
  approved_hash: z.string().nullable(),
  /** The approved definition as the server wrote it (JSON): what a list shows while it is `changed`. */
  approved: json.nullable(),
});
export type ToolPin = z.infer<typeof pin>;

const who = z.strictObject({
  event_id: z.string().regex(/^[0-9a-f]{12}$/),
  time_ms: z.number(),
  trace_id: z.string().nullable(),
  turn_id: z.string().nullable(),
  /** `guest`, or of the host's own calls who asked there. */
  requester: z.string(),
  client: z.string().nullable(),
  token_id: z.string().nullable(),
});
export type FactWho = z.infer<typeof who>;

/** As `Decision` of @capsem/policy. */
const decision = z.looseObject({
  action: z.enum(["allow", "ask", "block"]),
  rule_id: z.string(),
  reason: z.string(),
});

/** What a proxy wants recorded. The service makes rows of it. */
export const proxyFact = z.discriminatedUnion("kind", [
  /** The intent of a call, or the judgement of anything else. `event` is a `StoredEvent`. */
  z.strictObject({
    kind: z.literal("decision"),
    who,
    event: z.looseObject({ type: z.string() }),
    decision,
    policy_digest: z.string(),
  }),
  /** The one end of a tool call. `who` is that of its decision. */
  z.strictObject({
    kind: z.literal("call"),
    who,
    call: z.strictObject({
      call_id: z.string(),
      origin: z.enum(["mcp", "builtin"]),
      transport: z.enum(["framed", "http", "direct"]),
      server_name: z.string(),
      tool_name: z.string(),
      method: z.string(),
      request_id: z.string().nullable(),
      process_name: z.string().nullable(),
      arguments_preview: z.string().nullable(),
      response_preview: z.string().nullable(),
      bytes_sent: z.number().int().nullable(),
      bytes_received: z.number().int().nullable(),
      /** Canonical JSON of a label. */
      label_in: json,
      label_out: json.nullable(),
      is_pinned: z.boolean(),
    }),
    decision,
    outcome: z.enum(["done", "failed", "blocked", "denied", "asked", "expired", "cancelled", "interrupted"]),
    error: z.string().nullable(),
    duration_ms: z.number().nullable(),
    /** Whole payloads, where an event could not hold them: at most 10 MiB each, `bytes` being the original's. */
    bodies: z
      .strictObject({
        request: z.strictObject({ text: z.string(), bytes: z.number().int() }).exactOptional(),
        response: z.strictObject({ text: z.string(), bytes: z.number().int() }).exactOptional(),
      })
      .exactOptional(),
  }),
  /** A request that no rule let past, at a name that is ours: `capsem.internal.reserved`. */
  z.strictObject({
    kind: z.literal("net"),
    who,
    net: z.strictObject({
      kind: z.string(),
      process_name: z.string().nullable(),
      host: z.string(),
      port: z.number().int().nullable(),
      method: z.string().nullable(),
      path: z.string().nullable(),
      status: z.number().int().nullable(),
    }),
    outcome: z.enum(["blocked", "failed"]),
    reason: z.string(),
  }),
]);
export type ProxyFact = z.infer<typeof proxyFact>;

const octets = z.custom<Uint8Array>((value) => value instanceof Uint8Array);

const credit = z.strictObject({
  facts: z.number().int().nonnegative(),
  bytes: z.number().int().nonnegative(),
});
export type FactCredit = z.infer<typeof credit>;

/** Service → proxy. */
export const PROXY_METHODS = {
  /** Rules and settings as TOML; answers when nothing is decided by older ones. `digest` is what it must come to. */
  "policy.set": {
    params: z.strictObject({ user: z.string(), corp: z.string(), digest: z.string() }),
    result: z.strictObject({ digest: z.string() }),
  },
  /** Declared servers and all pins; answers when the new set serves. Until then the old one does. */
  "servers.set": {
    params: z.strictObject({
      generation: z.number().int(),
      servers: z.array(proxyServer),
      /** Declared and switched off: nothing of them is used, and whoever calls is told so. */
      disabled: z.array(mcpServerName),
      pins: z.array(pin),
    }),
    result: ok,
  },
  /** Added to what the proxy may send, and whether it may at all: refusing says why, as kind and words. */
  "facts.credit": {
    params: z.strictObject({
      add: credit,
      refusing: z.strictObject({ kind: z.string(), message: z.string() }).nullable(),
    }),
    result: ok,
  },
  /** The VM has another name, as rules see it. One that does not answer is replaced. */
  "vm.set": { params: z.strictObject({ vm: ruledVm }), result: ok },
  /** Looks at one server, now or from memory, and reports pins. Failures: not_found, upstream_failed, timeout. */
  "server.look": {
    params: z.strictObject({ server: z.string(), refresh: z.boolean() }),
    result: z.strictObject({ tools: z.number().int() }),
  },
  /** A call from the host, on the same rail. `arguments` is a JSON object. Failures: policy, not_found, timeout, upstream_failed. */
  "tool.call": {
    params: z.strictObject({
      server: z.string(),
      tool: z.string(),
      arguments: json,
      requester: z.string(),
      client: z.string().nullable(),
      token_id: z.string().nullable(),
      trace_id: z.string().nullable(),
      turn_id: z.string().nullable(),
    }),
    /** The `result` of tools/call as the server wrote it. */
    result: z.strictObject({ result: json, event_id: z.string() }),
  },
} as const;

/** Proxy → service. */
export const PROXY_SERVICE_METHODS = {
  ...WORKER_METHODS,
  /** Answers when a grant of it is on its way. */
  "worker.need": { params: z.strictObject({ kind: z.enum(["aggregator", "builtin"]) }), result: ok },
  /**
   * Within the credit; they are taken in the order of the calls. Nobody waits for the answer before acting. `facts` and
   * `bodies`: as in fact-message.ts. `bytes`: of the credit, what these took, as the proxy counts it; that much comes back.
   */
  "facts.append": {
    params: z.strictObject({
      facts: octets,
      bodies: z.array(octets).readonly(),
      bytes: z.number().int().exactOptional(),
    }),
    result: ok,
  },
  /** Waits for a person; the caller's deadline and cancel are the call's. */
  "ask.hold": {
    params: z.strictObject({
      who,
      event: z.looseObject({ type: z.string() }),
      decision,
      title: z.string(),
      /** The client asks the person itself: leave it open and answer at once. */
      is_later: z.boolean(),
    }),
    result: z.strictObject({
      state: z.enum(["approved", "denied", "expired", "cancelled", "pending"]),
      ask_id: z.string(),
      note: z.string().nullable(),
      retryable: z.boolean(),
    }),
  },
  /** What a server says of itself and its tools now; answers the pins that follow. */
  "pins.report": {
    params: z.strictObject({
      server: z.string(),
      info: z.strictObject({
        name: z.string(),
        version: z.string(),
        protocol: z.string(),
        resources: z.number().int(),
        prompts: z.number().int(),
      }),
      tools: z.array(
        z.strictObject({
          name: z.string(),
          title: z.string().nullable(),
          description: z.string().nullable(),
          /** As the server wrote it. */
          definition: json,
          /** Canonical and one field a line: what is hashed, and what differences are shown of. */
          canonical: z.string(),
          hash: z.string(),
        }),
      ),
    }),
    result: z.strictObject({ pins: z.array(pin) }),
  },
  "server.health": {
    params: z.strictObject({
      server: z.string(),
      state: z.enum(["idle", "connecting", "ok", "failed"]),
      error: z.string().nullable(),
    }),
    result: ok,
  },
} as const;

/**
 * Proxy → aggregator, and proxy → builtin, which is the one server `local`. `server.request` is opened: records
 * (`@capsem/mcp-protocol`, "records") go both ways on its stream, and a reset cancels. Failures of all: not_found,
 * upstream_failed (its message is for people), timeout.
 */
export const TOOL_SERVER_METHODS = {
  "server.set": {
    params: z.strictObject({ generation: z.number().int(), servers: z.array(proxyServer) }),
    result: ok,
  },
  "server.catalog": {
    params: z.strictObject({ server: z.string(), refresh: z.boolean() }),
    /** Everything as the server wrote it. */
    result: z.strictObject({
      name: z.string(),
      version: z.string(),
      protocol: z.string(),
      era: z.enum(["legacy", "modern"]),
      capabilities: json,
      instructions: z.string().nullable(),
      tools: z.array(json),
      resources: z.array(json),
      templates: z.array(json),
      prompts: z.array(json),
    }),
  },
  "server.request": {
    params: z.strictObject({
      server: z.string(),
      method: z.string(),
      params: json,
      /** The member `arguments` of the params, behind the others, where it is large: JSON in UTF-8, as it is to be sent. */
      arguments: z.instanceof(Uint8Array<ArrayBufferLike>).exactOptional(),
      /** Whoever reads the records can answer these of the server's requests. */
      client: z.strictObject({ sampling: z.boolean(), elicitation: z.boolean(), roots: z.boolean() }),
      timeout_ms: z.number().int(),
    }),
    result: ok,
  },
} as const;

/** Aggregator → proxy. */
export const TOOL_SERVER_EVENTS = {
  "server.changed": {
    params: z.strictObject({
      server: z.string(),
      what: z.enum(["tools", "resources", "prompts", "resource"]),
      uri: z.string().exactOptional(),
    }),
    result: ok,
  },
  "server.health": PROXY_SERVICE_METHODS["server.health"],
  /** A log message of the server that belongs to no request: the `params` of it. */
  "server.log": { params: z.strictObject({ server: z.string(), params: json }), result: ok },
} as const;

/** Aggregator | builtin → egress. Opened: the body comes down the stream. No redirect is followed. */
export const EGRESS_METHODS = {
  "http.fetch": {
    params: z.strictObject({
      /** The declared server whose request it is; null for the builtin tools, whose requests rules judge each. */
      server: z.string().nullable(),
      url: z.string(),
      method: z.string(),
      headers,
      body: z.instanceof(Uint8Array).nullable(),
      /** To the end of the answer's head; null for an event stream that is waited on. */
      timeout_ms: z.number().int().nullable(),
      trace_id: z.string().nullable(),
    }),
    /** Failures: policy (facts rule_id), dns_failed, connect_failed, tls_failed, timeout, upstream_failed. */
    result: z.strictObject({ status: z.number().int(), headers }),
  },
} as const;

/** Egress → service. */
export const EGRESS_SERVICE_METHODS = {
  ...WORKER_METHODS,
  /** Before a connection, and again when the lease is over. Failures: policy, dns_failed, not_found. */
  "egress.admit": {
    params: z.strictObject({
      /** The grant's name of who asked: `aggregator:SCOPE`. */
      client: z.string(),
      /** The name of the lease, if there comes to be one: whoever loses the answer can say that it is over. */
      lease: z.string().min(1).max(64),
      server: z.string().nullable(),
      url: z.string(),
      method: z.string(),
      /** Without values of cookies and authorization: what a rule may read. */
      headers,
      trace_id: z.string().nullable(),
    }),
    result: z.strictObject({
      lease: z.string(),
      /** 0: this request alone. */
      lease_ms: z.number().int(),
      addresses: z.array(z.string()),
      /** Added to the request, over what it brings: values with their secrets in place. */
      headers,
      /** Those secrets, in every form that is looked for: egress blanks them in what a server sends back. */
      secrets: z.array(z.string()),
      event_id: z.string(),
    }),
  },
  /** The end of what a lease of one request allowed, or of a connection. */
  "egress.done": {
    params: z.strictObject({
      lease: z.string(),
      status: z.number().int().nullable(),
      bytes_sent: z.number().int(),
      bytes_received: z.number().int(),
      duration_ms: z.number(),
      error: z.string().nullable(),
    }),
    result: ok,
  },
} as const;

/** Service → egress: leases that hold no more; null means all of that client or server. */
export const EGRESS_CONTROL_METHODS = {
  "egress.revoke": {
    params: z.strictObject({ client: z.string().nullable(), server: z.string().nullable() }),
    result: ok,
  },
} as const;

type Table = Readonly<Record<string, { readonly params: z.ZodType; readonly result: z.ZodType }>>;
export type ContractParams<T extends Table, M extends keyof T> = z.infer<T[M]["params"]>;
export type ContractResult<T extends Table, M extends keyof T> = z.infer<T[M]["result"]>;
