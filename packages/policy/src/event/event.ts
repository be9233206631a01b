import { Failure } from "@capsem/base";
import { POLICY_LIMITS } from "../limits.ts";
import { suggestion } from "../nearest.ts";
import { CARRIED, EVENT_TYPE_NAMES, EVENT_TYPES, type EventType, isEventType } from "./event-table.ts";
import {
  FIELD_PATHS,
  FIELD_STRUCTS,
  type FIELDS,
  type FieldPath,
  fieldRow,
  structsAbove,
} from "./field-table.ts";
import { takeValue, ValueProblem } from "./field-value.ts";
import { type CelValue, type JsonValue, toJson } from "./value.ts";

interface JsTypes {
  bool: boolean;
  int: number;
  double: number;
  text: string;
  upper: string;
  lower: string;
  host: string;
  ip: string;
  path: string;
  body: string | Uint8Array;
  texts: readonly string[];
  headers: Readonly<Record<string, string>>;
  json: Readonly<Record<string, unknown>>;
  jsons: readonly Readonly<Record<string, unknown>>[];
}

/** The fields of one event, by their path; `event.type` is filled in. */
export type EventFields = {
  readonly [P in Exclude<FieldPath, "event.type">]?: JsTypes[(typeof FIELDS)[P]["kind"]] | undefined;
};

/** Which event it is: carried into the ledger, not readable by rules. */
export interface EventIdentity {
  /** 12 lower-case hex digits. */
  readonly event_id: string;
  readonly trace_id?: string | undefined;
  readonly turn_id?: string | undefined;
  readonly generation?: number | undefined;
}

/** The stored form: JSON, and enough to decide the same again. */
export interface StoredEvent extends EventIdentity {
  readonly type: EventType;
  readonly fields: Readonly<Record<string, JsonValue>>;
}

/** One normalised fact that policy judges. Made by `securityEvent` alone, and never changed. */
export class SecurityEvent {
  readonly type: EventType;
  readonly identity: EventIdentity;
  /** Fields by path, and `true` at every inner node above one. */
  readonly facts: ReadonlyMap<string, CelValue>;

  constructor(type: EventType, identity: EventIdentity, facts: ReadonlyMap<string, CelValue>) {
    this.type = type;
    this.identity = identity;
    this.facts = facts;
    Object.freeze(this);
  }

  toJSON(): StoredEvent {
    const fields: Record<string, JsonValue> = {};
    for (const path of STORED.get(this.type) ?? []) {
      const value = this.facts.get(path);
      if (value !== undefined) fields[path] = toJson(value);
    }
    return { type: this.type, ...this.identity, fields };
  }
}

/** What can be stored of an event, in the order of canonical JSON. */
const STORED: ReadonlyMap<EventType, readonly string[]> = new Map(
  [...CARRIED].map(([type, paths]) => [type, [...paths].filter((path) => path !== "event.type").sort()]),
);

const STRUCTS: ReadonlyMap<string, readonly string[]> = new Map(
  FIELD_PATHS.map((path) => [path, structsAbove(path)]),
);

/** Each root that an event has says whether it is valid and, where something can be cut, whether it was. */
const FLAGS = new Map(EVENT_TYPE_NAMES.map((type) => [type, flagsOf(type)]));

function flagsOf(type: EventType) {
  const roots = [...FIELD_STRUCTS].filter((name) => CARRIED.get(type)?.has(`${name}.valid`) === true);
  return roots.map((root) => ({ root, valid: `${root}.valid`, truncated: `${root}.truncated` }));
}

function refuse(type: string, what: string): never {
  throw new Failure("event_invalid", `Cannot judge event "${type}": ${what}`);
}

function refuseType(type: string): never {
  refuse(type.slice(0, 80), `its type is unknown${suggestion(type, EVENT_TYPE_NAMES)}`);
}

/** A field of such events that is spelled nearly so is more likely meant than one of others. */
function refuseField(type: EventType, path: string): never {
  const isField = fieldRow(path) !== undefined;
  const own = suggestion(
    path,
    [...(CARRIED.get(type) ?? [])].filter((field) => field !== "event.type"),
  );
  const near = own !== "" || isField ? own : suggestion(path, FIELD_PATHS);
  refuse(type, `field "${path.slice(0, 80)}" does not ${isField ? "belong to it" : "exist"}${near}`);
}

/**
 * Makes the event of one act. Throws a Failure "event_invalid" for anything that is not exactly such an event:
 * the caller refuses the act, because what cannot be judged is not done.
 */
export function securityEvent(type: EventType, identity: EventIdentity, fields: EventFields): SecurityEvent {
  checkIdentity(type, identity);
  const carried = CARRIED.get(type) ?? refuseType(type);
  const facts = new Map<string, CelValue>();
  const put = (path: string, value: CelValue) => {
    facts.set(path, value);
    const structs = STRUCTS.get(path) ?? [];
    // The deepest last: where it is, those around it are.
    for (let at = structs.length - 1; at >= 0; at--) {
      const struct = structs[at] as string;
      if (facts.has(struct)) break;
      facts.set(struct, true);
    }
  };
  put("event.type", type);
  const cut = new Set<string>();
  const values = fields as Readonly<Record<string, unknown>>;
  for (const path of Object.keys(values)) {
    const given = values[path];
    if (given === undefined) continue;
    const row = fieldRow(path);
    if (row === undefined || path === "event.type" || !carried.has(path)) refuseField(type, path);
    const taken = takeValue(row, given);
    if (taken instanceof ValueProblem) refuse(type, `field "${path}" is ${taken.what}`);
    put(path, taken.value);
    if (taken.isCut) cut.add(rootOf(path));
  }
  if (facts.has("file")) deriveFileFields(facts, put);
  for (const { root, valid, truncated } of FLAGS.get(type) ?? []) {
    if (!facts.has(root)) continue;
    if (!facts.has(valid)) put(valid, true);
    if (carried.has(truncated)) put(truncated, cut.has(root) || facts.get(truncated) === true);
  }
  for (const path of EVENT_TYPES[type].requires) {
    if (!facts.has(path) && facts.get(`${rootOf(path)}.valid`) !== false) {
      refuse(type, `field "${path}" is missing`);
    }
  }
  return new SecurityEvent(type, Object.freeze({ ...identity }), facts);
}

/** Reads the stored form. Throws like `securityEvent`. */
export function eventFromJson(stored: unknown): SecurityEvent {
  if (typeof stored !== "object" || stored === null) refuse("unknown", "it is no object");
  const { type, fields, ...identity } = stored as Partial<StoredEvent>;
  if (typeof type !== "string" || !isEventType(type)) refuseType(String(type));
  if (typeof fields !== "object" || fields === null) refuse(type, "it has no fields");
  return securityEvent(type, identity as EventIdentity, fields as EventFields);
}

/** An identity may come from a stored event: nothing else may ride in it. */
function checkIdentity(type: string, identity: EventIdentity): void {
  const { event_id, trace_id, turn_id, generation, ...rest } = identity;
  if (typeof event_id !== "string" || !/^[0-9a-f]{12}$/.test(event_id)) {
    refuse(type, "its id is not 12 hex digits");
  }
  for (const id of [trace_id, turn_id]) {
    if (id !== undefined && (typeof id !== "string" || id.length > POLICY_LIMITS.traceCharsMax)) {
      refuse(type, `its trace or turn is no text of at most ${POLICY_LIMITS.traceCharsMax} characters`);
    }
  }
  if (generation !== undefined && !Number.isSafeInteger(generation))
    refuse(type, "its generation is no integer");
  const [more] = Object.keys(rest);
  if (more !== undefined) refuse(type, `"${more.slice(0, 80)}" is no part of it`);
}

function rootOf(path: string): string {
  return path.slice(0, path.indexOf("."));
}

const FILE_ACTS = ["import", "export", "read", "create", "write", "delete"] as const;

/**
 * Fields that `deriveFileFields` makes of this one. `file.content` gives those that it is made of, because who
 * collects a content may name it either way.
 */
export function fieldsMadeWith(path: string): readonly string[] {
  if (path === "file.content") return FILE_ACTS.map((act) => `file.${act}.content`);
  const [, act, part] = /^file\.([a-z]+)\.(path|content)$/.exec(path) ?? [];
  if (part === undefined) return [];
  return part === "content" ? ["file.content"] : [`file.${act}.name`, `file.${act}.ext`];
}

/** Name and extension follow from the path, and `file.content` is the content of the act. */
function deriveFileFields(
  facts: ReadonlyMap<string, CelValue>,
  put: (path: string, value: CelValue) => void,
): void {
  for (const act of FILE_ACTS) {
    const path = facts.get(`file.${act}.path`);
    if (typeof path === "string") {
      const name = path.slice(path.lastIndexOf("/") + 1);
      const dot = name.lastIndexOf(".");
      put(`file.${act}.name`, name);
      put(`file.${act}.ext`, dot > 0 ? name.slice(dot + 1).toLowerCase() : "");
    }
    const content = facts.get(`file.${act}.content`);
    if (content !== undefined && !facts.has("file.content")) put("file.content", content);
  }
}
