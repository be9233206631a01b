import { randomBytes } from "node:crypto";
import {
  type AskInfo,
  apiFailure,
  type CredentialInfo,
  type DecisionInfo,
  type PolicyFaultInfo,
  type RuleFields,
  type RuleInfo,
  type SettingInfo,
  type SettingList,
} from "@capsem/api";
import { type Deferred, defer, newId } from "@capsem/base";

/** Who asks, as a request's headers say it. */
export interface FixtureCaller {
  readonly requester: string;
  readonly client: string | null;
  readonly traceId: string | null;
  readonly signal: AbortSignal;
}

const NOW = "2025-01-02T03:04:09.000Z";
const ASK_MS = 300_000;
const BUILTIN: RuleInfo = {
  id: "default.allow-exec",
  name: "allow-exec",
  source: "builtin",
  action: "allow",
  match: 'event.type == "process.exec"',
  detection_level: "none",
  priority: 1001,
  reason: "commands are allowed unless a rule says otherwise",
  enabled: true,
  file: null,
  line: null,
  is_locked: true,
};
/** All that a rule of this fixture can say. */
const MATCH = /^process\.command(?:\.contains\(| == )"([^"]*)"\)?$/;
const FILE_MATCH = /^file\.(import|export|create)\.name == "([^"]*)"$/;
const SETTINGS: readonly SettingInfo[] = [
  setting("profiles.preset", "developer", "one of locked-down, developer, open"),
  setting("limits.pool_size", 2, "a whole number from 0 to 16"),
  setting("confinement.allow_unconfined", false, "true or false"),
  setting("profiles.rule_files", [], "a list of at most 32 texts"),
  { ...setting("limits.running_max", 8, "a whole number from 1 to 256"), source: "corp", is_locked: true },
];

function setting(key: string, value: SettingInfo["value"], takes: string): SettingInfo {
  const doc = `what ${key} is for`;
  return {
    ...{ key, value, default: value, source: "builtin", is_locked: false, needs_restart: false },
    takes,
    doc,
  };
}

/** Rules of two shapes, asks that hold, settings and credentials: what a client of the policy routes needs. */
export class FixturePolicy {
  readonly rules = new Map<string, RuleInfo>();
  readonly asks = new Map<string, AskInfo>();
  readonly credentials = new Map<string, CredentialInfo>();
  readonly #waiting = new Map<string, Deferred<void>>();
  readonly #tell: (ask: AskInfo) => void;
  settings: SettingInfo[] = [...SETTINGS];
  #digest = 1;

  constructor(tell: (ask: AskInfo) => void) {
    this.#tell = tell;
  }

  get pending(): AskInfo[] {
    return [...this.asks.values()].filter(({ state }) => state === "pending");
  }

  get digest(): string {
    return String(this.#digest).padStart(64, "0");
  }

  /** In the order of judgement. */
  get inForce(): RuleInfo[] {
    const own = [...this.rules.values()].sort(
      (left, right) => left.priority - right.priority || (left.id < right.id ? -1 : 1),
    );
    return [...own, BUILTIN];
  }

  put(id: string, fields: RuleFields): void {
    const name = this.#nameOf(id);
    if (MATCH.exec(fields.match) === null && FILE_MATCH.exec(fields.match) === null) {
      throw faulty("Cannot write the rule: it has a fault", "bad_match", `unknown field in ${fields.match}`);
    }
    this.rules.set(name, ownRule(name, fields));
    this.#digest += 1;
  }

  remove(id: string): void {
    const name = this.#nameOf(id);
    if (!this.rules.delete(name)) throw apiFailure("rule_not_found", `Cannot find rule "${name}"`);
    this.#digest += 1;
  }

  /** A tree is refused while a rule judges single files that go its way; one of them by its name. */
  checkFile(act: "import" | "export" | "create", name: string | null): void {
    const rules = this.inForce.filter(({ match, enabled }) => enabled && FILE_MATCH.exec(match)?.[1] === act);
    const [rule] = name === null ? rules : rules.filter(({ match }) => FILE_MATCH.exec(match)?.[2] === name);
    if (rule === undefined) return;
    const facts = { rule_id: rule.id, ...(name === null ? { needs_files: true } : {}) };
    const what =
      name === null ? "the folder: each of its files is judged by itself" : `the file: ${rule.reason}`;
    throw apiFailure("policy", `Cannot ${act} ${what}`, { facts });
  }

  /** By the rules in force, or by those of a text in place of the user's. */
  decide(command: string, text?: unknown): DecisionInfo {
    const rules = typeof text === "string" ? [...rulesOfText(text), BUILTIN] : this.inForce;
    const matched = rules.filter((rule) => rule.enabled && matches(rule, command));
    const [first = BUILTIN] = matched;
    return {
      action: first.action === "block" ? "block" : first.action === "ask" ? "ask" : "allow",
      rule_id: first.id,
      reason: first.reason,
      detection: first.detection_level,
      changes: [],
      why: matched.length > 1 ? "lower_priority" : "only_one",
      matched: matched.map(({ id, action, priority, detection_level: detection }) => ({
        ...{ rule_id: id, action, priority, detection, fault: null },
      })),
      allowed: [{ rule_id: BUILTIN.id, match: BUILTIN.match }],
    };
  }

  /** Returns when the act may be done; a refusal is thrown. */
  async admit(
    decision: DecisionInfo,
    vm: { readonly id: string; readonly name: string | null },
    command: string,
    caller: FixtureCaller,
  ): Promise<void> {
    const { action, rule_id: ruleId, reason } = decision;
    if (action === "allow") return;
    if (action === "block")
      throw apiFailure("policy", `Cannot run in VM "${vm.id}": ${reason}`, { facts: { rule_id: ruleId } });
    const ask = this.ask({ vm, decision, title: command, caller });
    const facts = { rule_id: ruleId, ask_id: ask.id };
    const answered: Deferred<void> = defer();
    this.#waiting.set(ask.id, answered);
    const leave = () => this.#settle(ask.id, { state: "expired", note: "the caller left" });
    caller.signal.addEventListener("abort", leave, { once: true });
    await answered.promise;
    caller.signal.removeEventListener("abort", leave);
    const { state } = this.asks.get(ask.id) ?? ask;
    if (state !== "approved")
      throw apiFailure("policy", `Cannot run in VM "${vm.id}": the ask was ${state}`, { facts });
  }

  ask(asked: {
    readonly vm: { readonly id: string; readonly name: string | null };
    readonly decision: Pick<DecisionInfo, "rule_id" | "reason">;
    readonly title: string;
    readonly caller: FixtureCaller;
  }): AskInfo {
    const ask: AskInfo = {
      id: newId("ask", (bytes) => randomBytes(bytes)),
      state: "pending",
      vm_id: asked.vm.id,
      vm_name: asked.vm.name,
      type: "process.exec",
      title: asked.title,
      rule_id: asked.decision.rule_id,
      reason: asked.decision.reason,
      requester: asked.caller.requester,
      client: asked.caller.client,
      trace_id: asked.caller.traceId,
      digest: randomBytes(32).toString("hex"),
      created_at: new Date().toISOString(),
      expires_at: new Date(Date.now() + ASK_MS).toISOString(),
      is_held: true,
      is_used: false,
      ...{ scope: null, resolver: null, note: null, resolved_at: null },
      event_id: randomBytes(6).toString("hex"),
      scopes: ["once", "vm", "always"],
    };
    this.asks.set(ask.id, ask);
    this.#tell(ask);
    return ask;
  }

  resolve(id: string, given: Readonly<Record<string, unknown>>): AskInfo {
    const ask = this.asks.get(id);
    if (ask === undefined) throw apiFailure("ask_not_found", `Cannot find ask "${id}"`);
    if (ask.state !== "pending")
      throw apiFailure("wrong_state", `Cannot resolve ask "${id}": it is ${ask.state}`);
    const scope = given.scope === "vm" || given.scope === "always" ? given.scope : "once";
    return this.#settle(id, {
      state: given.approve === true ? "approved" : "denied",
      scope: given.approve === true ? scope : null,
      resolver: "user uid 1000",
      note: typeof given.note === "string" ? given.note : null,
    });
  }

  #settle(id: string, change: Partial<AskInfo>): AskInfo {
    const ask = this.asks.get(id);
    if (ask === undefined) throw apiFailure("ask_not_found", `Cannot find ask "${id}"`);
    if (ask.state !== "pending") return ask;
    const settled = { ...ask, ...change, is_held: false, resolved_at: NOW };
    this.asks.set(id, settled);
    this.#tell(settled);
    this.#waiting.get(id)?.resolve();
    this.#waiting.delete(id);
    return settled;
  }

  edit(edits: readonly { readonly key: string; readonly value: SettingInfo["value"] | null }[]): void {
    const next = new Map(this.settings.map((each) => [each.key, each]));
    for (const { key, value } of edits) {
      const old = next.get(key);
      if (old === undefined) throw faulty("Cannot edit settings: none was changed", "unknown_key", key);
      if (old.is_locked) throw locked(`Cannot set ${key}: the corporation has set it`, key);
      if (value !== null && typeof value !== typeof old.default)
        throw faulty("Cannot edit settings: none was changed", "bad_value", `${key} takes ${old.takes}`);
      next.set(key, { ...old, value: value ?? old.default, source: value === null ? "builtin" : "user" });
    }
    this.settings = [...next.values()];
  }

  get settingList(): SettingList {
    return { file: "settings.toml", digest: this.digest, settings: this.settings, faults: [] };
  }

  #nameOf(id: string): string {
    const [, name] = /^(?:profiles\.rules\.)?([a-z0-9_-]{1,64})$/.exec(id) ?? [];
    if (name === undefined) throw locked(`Cannot write rule "${id}": it is not the user's`, id);
    return name;
  }
}

function ownRule(name: string, fields: RuleFields): RuleInfo {
  return {
    id: `profiles.rules.${name}`,
    name,
    source: "user",
    action: fields.action,
    match: fields.match,
    detection_level: fields.detection_level ?? "none",
    priority: fields.priority ?? 10,
    reason: fields.reason ?? "",
    enabled: fields.enabled ?? true,
    file: "settings.toml",
    line: 1,
    is_locked: false,
  };
}

const TABLE = /^\[profiles\.rules\.([a-z0-9_-]+)\]\naction = "(\w+)"\nmatch = '(.*)'$/gm;

function rulesOfText(text: string): RuleInfo[] {
  return [...text.matchAll(TABLE)].map(([, name = "", action = "", match = ""]) =>
    ownRule(name, { action, match }),
  );
}

function matches({ match, id }: RuleInfo, command: string): boolean {
  if (id === BUILTIN.id) return true;
  const [, word] = MATCH.exec(match) ?? [];
  if (word === undefined) return false;
  return match.includes(".contains(") ? command.includes(word) : command === word;
}

export function faultOf(code: string, message: string): PolicyFaultInfo {
  return { code, message, file: null, line: 1, column: 9, subject: null };
}

function locked(message: string, subject: string) {
  return apiFailure("locked", message, { facts: { faults: [{ ...faultOf("locked", message), subject }] } });
}

function faulty(message: string, code: string, fault: string) {
  return apiFailure("invalid_input", message, { facts: { faults: [faultOf(code, fault)] } });
}
