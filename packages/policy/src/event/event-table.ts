import { ARRIVES, type Arrival, FIELDS_TO_COME, type ToCome } from "./arrivals.ts";
import { FIELD_PATHS, type FieldPath, structsAbove } from "./field-table.ts";

export interface EventTypeRow {
  readonly doc: string;
  /** Fields, or everything below a name, that such an event may carry; the common ones come on top. */
  readonly carries: readonly string[];
  /** Without these it is no such event; where the parser failed (`valid` is false) they may be missing. */
  readonly requires: readonly FieldPath[];
  /** Nothing in this version makes such an event. */
  readonly arrives?: Arrival;
}

/** What every event may carry: who, where, and the label of what flows into it. */
export const COMMON_CARRIES: readonly string[] = [
  "event.type",
  "label",
  "vm.id",
  "vm.name",
  "vm.image",
  "vm.labels",
  "process.valid",
  "process.name",
];

const fileType = (act: string, doc: string): EventTypeRow => ({
  doc,
  carries: ["file.valid", "file.truncated", "file.content", `file.${act}`],
  requires: [`file.${act}.path` as FieldPath],
});
const process = [
  "process.truncated",
  "process.command",
  "process.exec.id",
  "process.exec.path",
  "process.exec.user",
  "process.exec.cwd",
  "process.exec.env_names",
  "process.exec.has_stdin",
];

/** The closed list of event types. */
export const EVENT_TYPES = {
  "http.request": {
    doc: "a request is about to leave",
    carries: ["http", "network"],
    requires: ["http.host", "http.method"],
  },
  "http.response": {
    doc: "a response came, before the VM sees it",
    carries: ["http", "network"],
    requires: ["http.host", "http.status"],
    arrives: ARRIVES.network,
  },
  "dns.query": {
    doc: "a name is asked for",
    carries: ["dns"],
    requires: ["dns.qname"],
    arrives: ARRIVES.network,
  },
  "mcp.event": {
    doc: "any other MCP message",
    carries: ["mcp"],
    requires: ["mcp.method"],
  },
  "mcp.tool_list": {
    doc: "a list of tools, before the client sees it",
    carries: ["mcp"],
    requires: ["mcp.server.name"],
  },
  "mcp.tool_call": {
    doc: "a tool is called",
    carries: ["mcp"],
    requires: ["mcp.server.name", "mcp.tool_call.name"],
  },
  "mcp.tool_result": {
    doc: "a result, before the client sees it",
    carries: ["mcp"],
    requires: ["mcp.server.name", "mcp.tool_call.name"],
  },
  "model.call": {
    doc: "a call of a model, with its answer once there is one",
    carries: ["model", "http.host"],
    requires: ["model.provider"],
    arrives: ARRIVES.models,
  },
  "file.import": fileType("import", "a file or tree is copied into the VM"),
  "file.export": fileType("export", "a file or tree is copied out of the VM"),
  "file.event": {
    doc: "a file act inside the VM",
    carries: [
      "file.valid",
      "file.truncated",
      "file.content",
      "file.read",
      "file.create",
      "file.write",
      "file.delete",
    ],
    requires: [],
  },
  "process.exec": { doc: "a job is started", carries: process, requires: ["process.command"] },
  "process.exec_complete": {
    doc: "a job has ended",
    carries: ["process.truncated", "process.command", "process.exec"],
    requires: ["process.exec.id"],
  },
  "process.audit": {
    doc: "a program was started inside the VM",
    carries: ["process.truncated", "process.audit"],
    requires: ["process.audit.exe"],
    arrives: ARRIVES.inside,
  },
  "network.connect": {
    doc: "a connection is dialled, out of the VM or to a published port",
    carries: ["network"],
    requires: ["network.destination.port"],
    arrives: ARRIVES.network,
  },
  "network.lifecycle": {
    doc: "a private network is made, changed or removed",
    carries: ["network"],
    requires: ["network.name"],
    arrives: ARRIVES.network,
  },
  "capsule.invoke": {
    doc: "a capsule is invoked",
    carries: ["capsule", "mcp.valid", "mcp.truncated", "mcp.request.arguments"],
    requires: ["capsule.name", "capsule.level"],
    arrives: ARRIVES.capsules,
  },
  "vm.lifecycle": {
    doc: "a VM is made, started, stopped, renamed, kept, deleted and so on",
    carries: ["vm"],
    requires: ["vm.lifecycle.action"],
  },
  "settings.change": {
    doc: "a setting, a rule or a credential changes, or corp.toml is read again",
    carries: ["settings"],
    requires: ["settings.key", "settings.source"],
  },
  "credential.substitution": {
    doc: "a reference is about to be replaced by its secret",
    carries: ["http"],
    requires: ["http.host"],
    arrives: ARRIVES.network,
  },
  "security.rule": {
    doc: "a rule with a detection level matched",
    carries: [],
    requires: [],
    arrives: ARRIVES.later,
  },
  "security.ask": { doc: "an ask was made or answered", carries: [], requires: [], arrives: ARRIVES.later },
} as const satisfies Readonly<Record<string, EventTypeRow>>;

export type EventType = keyof typeof EVENT_TYPES;
export const EVENT_TYPE_NAMES = Object.keys(EVENT_TYPES) as readonly EventType[];

function carriedBy(type: EventType): ReadonlySet<string> {
  const names: readonly string[] = [...COMMON_CARRIES, ...EVENT_TYPES[type].carries];
  return new Set(
    FIELD_PATHS.filter((path) => names.some((name) => path === name || path.startsWith(`${name}.`))),
  );
}

/** Every field that an event of a type may carry. */
export const CARRIED: ReadonlyMap<EventType, ReadonlySet<string>> = new Map(
  EVENT_TYPE_NAMES.map((type) => [type, carriedBy(type)]),
);

/** A rule can only ever match events that may carry all of `paths`: a field, or the name above fields. */
export function typesThatCarry(paths: Iterable<string>): EventType[] {
  const wanted = [...paths];
  return EVENT_TYPE_NAMES.filter((type) => wanted.every((path) => NAMES.get(type)?.has(path) === true));
}

/** What a type comes with; undefined for one that this version makes. */
export function typeArrival(type: EventType): Arrival | undefined {
  const row: EventTypeRow = EVENT_TYPES[type];
  return row.arrives;
}

/** What a field, or the name above fields, comes with; undefined where an event of this version may have it. */
export function fieldArrival(path: string): Arrival | undefined {
  if (typesThatMake([path]).length > 0) return undefined;
  return toCome(path)?.arrival ?? typesThatCarry([path]).map(typeArrival)[0];
}

/** What the table says of a field, or of the name above fields, whichever types have it already. */
export function toCome(path: string): ToCome | undefined {
  const name = [path, ...structsAbove(path)].find((each) => Object.hasOwn(FIELDS_TO_COME, each));
  return name === undefined ? undefined : FIELDS_TO_COME[name];
}

function isMade(type: EventType, path: string): boolean {
  const row = toCome(path);
  return row === undefined || row.already?.includes(type) === true;
}

/** As `typesThatCarry`, of what this version makes. */
export function typesThatMake(paths: Iterable<string>): EventType[] {
  const wanted = [...paths];
  return [...MADE].filter(([, names]) => wanted.every((path) => names.has(path))).map(([type]) => type);
}

/** Carried fields and the names above them. */
const NAMES: ReadonlyMap<EventType, ReadonlySet<string>> = new Map(
  [...CARRIED].map(([type, fields]) => [type, namesOf(fields)]),
);

/** The same of the events and fields that this version makes. */
const MADE: ReadonlyMap<EventType, ReadonlySet<string>> = new Map(
  [...CARRIED]
    .filter(([type]) => typeArrival(type) === undefined)
    .map(([type, fields]) => [type, namesOf([...fields].filter((path) => isMade(type, path)))]),
);

function namesOf(fields: Iterable<string>): ReadonlySet<string> {
  return new Set([...fields].flatMap((path) => [path, ...structsAbove(path)]));
}

export function isEventType(text: string): text is EventType {
  return Object.hasOwn(EVENT_TYPES, text);
}
