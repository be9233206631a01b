import { createHash } from "node:crypto";
import { apiFailure, type CredentialInfo, type RouteName, type RuleFields } from "@capsem/api";
import type { Handler } from "./fixture-handlers.ts";
import {
  historyOf,
  ledgerInfoOf,
  securityOf,
  statsDetailOf,
  statsOf,
  timelineOf,
  verifyOf,
} from "./fixture-ledger.ts";
import { faultOf } from "./fixture-policy.ts";

const FINDING = {
  kind: "dead",
  rule_id: "profiles.rules.dead",
  other_id: null,
  message: "profiles.rules.dead can never fire",
  line: 1,
} as const;

export const POLICY_HANDLERS: Partial<Record<RouteName, Handler>> = {
  rules: ({ state: { policy } }) => ({
    preset: "developer",
    digest: policy.digest,
    rules: policy.inForce,
    posture: { "http.request": "ask", "process.exec": "allow", "file.import": "allow" },
    findings: policy.rules.has("dead") ? [FINDING] : [],
  }),
  rulePut: async (call) => {
    const { policy } = call.state;
    policy.put(call.params.id ?? "", (await call.json()) as unknown as RuleFields);
    return { digest: policy.digest, findings: policy.rules.has("dead") ? [FINDING] : [] };
  },
  ruleDelete: ({ state: { policy }, params }) => {
    policy.remove(params.id ?? "");
    return { digest: policy.digest, findings: [] };
  },
  ruleEvaluate: async (call) => {
    const { event, rules } = (await call.json()) as {
      event: { type: string; fields: Record<string, unknown> };
      rules?: string;
    };
    if (event.type !== "process.exec")
      throw apiFailure("invalid_input", `Cannot judge event "${event.type}": its type is unknown`);
    const decision = call.state.policy.decide(String(event.fields["process.command"] ?? ""), rules);
    return { decision, text: `${decision.action} by ${decision.rule_id}: ${decision.reason}` };
  },
  ruleReplay: async (call) => {
    const { vm_id: id, rules } = await call.json();
    const { rows } = call.state.ledgers.get(String(id));
    const judged = rows.map((row) => ({ row, now: call.state.policy.decide(row.command, rules) }));
    const different = judged.filter(({ row, now }) => now.action !== row.decision.action);
    return {
      events: rows.length,
      same: rows.length - different.length,
      different: different.map(({ row, now }) => ({
        time: row.time,
        event_id: row.eventId,
        type: "process.exec",
        title: row.command,
        was: { action: row.decision.action, rule_id: row.decision.rule_id },
        now: { action: now.action, rule_id: now.rule_id, reason: now.reason },
      })),
      undecidable: [],
      truncated: false,
    };
  },
  ruleLint: async (call) => {
    const { rules } = await call.json();
    const isBad = String(rules ?? "").includes("wrong");
    return { rules: 1, findings: [], faults: isBad ? [faultOf("syntax", "a key is needed")] : [] };
  },
  settings: ({ state: { policy } }) => policy.settingList,
  settingEdit: async (call) => {
    const { edits } = await call.json();
    call.state.policy.edit(edits as Parameters<typeof call.state.policy.edit>[0]);
    return call.state.policy.settingList;
  },
  corp: () => corpInfo,
  corpReload: () => corpInfo,
  corpValidate: async (call) => {
    const isBad = String((await call.json()).text).includes("wrong");
    const faults = isBad ? [faultOf("unknown_key", '"wrong" is no table')] : [];
    return { is_valid: !isBad, rules: isBad ? 0 : 1, faults, findings: [] };
  },
  asks: ({ state, query }) => {
    const wanted = query.get("state");
    const asks = [...state.policy.asks.values()].reverse();
    return { asks: asks.filter((ask) => wanted === null || ask.state === wanted) };
  },
  askResolve: async (call) => call.state.policy.resolve(call.params.id ?? "", await call.json()),
  credentialInject: async (call) => {
    const { name, secret, hosts, keep } = await call.json();
    const { credentials } = call.state.policy;
    if ([...credentials.values()].some((each) => each.name === name))
      throw apiFailure("name_taken", `Cannot register credential "${String(name)}": its name is taken`);
    const hash = createHash("sha256").update(String(secret)).digest("hex");
    const info: CredentialInfo = {
      ref: `credential:blake3:${hash}`,
      name: String(name),
      hosts: hosts as string[],
      keep: keep === "file" ? "file" : "memory",
      created_at: "2025-01-02T03:04:09.000Z",
    };
    credentials.set(info.ref, info);
    return info;
  },
  credentials: ({ state }) => ({ credentials: [...state.policy.credentials.values()] }),
  credentialDelete: ({ state, params }) => {
    if (!state.policy.credentials.delete(params.ref ?? ""))
      throw apiFailure("credential_not_found", "Cannot find credential: it does not exist");
    return { ok: true, servers: state.mcp.serversWith(params.ref ?? "") };
  },
};

const corpInfo = {
  file: "corp.toml",
  is_present: true,
  digest: "c".repeat(64),
  rules: 1,
  locked: ["limits.running_max"],
  faults: [],
};

export const EVIDENCE_HANDLERS: Partial<Record<RouteName, Handler>> = {
  timeline: ({ state, params, query }) => {
    const rows = state.ledgers.get(params.id ?? "").rows.map(timelineOf);
    const trace = query.get("trace_id");
    const wanted = rows.filter(({ trace_id: id }) => trace === null || id === trace);
    const { part, next } = pageOf(query.get("newest") === "true" ? wanted.reverse() : wanted, query);
    return { entries: part, next };
  },
  history: ({ state, params, query }) => {
    const search = query.get("search") ?? "";
    const rows = state.ledgers
      .get(params.id ?? "")
      .rows.map(historyOf)
      .reverse();
    const wanted = rows.filter(({ command }) => command.includes(search));
    const offset = Number(query.get("offset") ?? 0);
    const limit = Number(query.get("limit") ?? 100);
    return { entries: wanted.slice(offset, offset + limit), total: wanted.length };
  },
  vmStats: ({ state, params }) => statsOf(params.id ?? "", state.ledgers.get(params.id ?? "")),
  vmStatsDetail: ({ state, params }) => statsDetailOf(params.id ?? "", state.ledgers.get(params.id ?? "")),
  securityEvents: ({ state, params, query }) => {
    const asked = (row: ReturnType<typeof securityOf>) =>
      (["action", "type", "rule_id"] as const).every((key) => [null, row[key]].includes(query.get(key)));
    const rows = state.ledgers
      .get(params.id ?? "")
      .rows.map(securityOf)
      .reverse();
    const { part, next } = pageOf(rows.filter(asked), query);
    return { events: part, next };
  },
  ledgers: ({ state }) => ({ ledgers: [...state.ledgers.all].map(ledgerInfoOf) }),
  ledgerVerify: ({ state, params }) => verifyOf(params.vm_id ?? "", state.ledgers.get(params.vm_id ?? "")),
  ledgerArchive: ({ state, params }) => {
    const id = params.vm_id ?? "";
    const ledger = state.ledgers.get(id);
    if (!ledger.isBroken) throw apiFailure("wrong_state", `Cannot archive ledger ${id}: it is whole`);
    ledger.isBroken = false;
    ledger.archived += 1;
    return { vm_id: id, name: `${id}.archived-1` };
  },
  ledgerExport: ({ state, params, response }) => {
    const id = params.vm_id ?? "";
    const { rows } = state.ledgers.get(id);
    response.writeHead(200, { "content-type": "application/x-ndjson" });
    const [hash, head] = ["1".repeat(64), "0".repeat(64)];
    const tables = { exec_events: ["event_id", "command"] };
    const first = { capsem_ledger: 1, ledger: id, rows: rows.length, genesis: head, head, heads: [], tables };
    response.write(`${JSON.stringify(first)}\n`);
    for (const [at, row] of rows.entries()) {
      const whose = { producer: "service", generation: "fixture", seq: at + 1 };
      const line = {
        ...{ n: at + 1, table: "exec_events", ...whose },
        ...{ row: [row.eventId, row.command], hash, head },
      };
      response.write(`${JSON.stringify(line)}\n`);
    }
    response.end();
    return undefined;
  },
};

/** A cursor is an opaque text to clients: here, where the next page begins. */
function pageOf<T>(rows: readonly T[], query: URLSearchParams): { part: T[]; next: string | null } {
  const from = Number(query.get("cursor")?.slice(1) ?? 0);
  const to = from + Number(query.get("limit") ?? 100);
  return { part: rows.slice(from, to), next: to < rows.length ? `c${to}` : null };
}
