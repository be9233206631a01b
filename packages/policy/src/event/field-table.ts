/**
 * What a field holds. Text kinds differ in what the event does with them: all are refused when too long, but for
 * `body`, which is cut at 64 KiB; `upper`, `lower`, `host`, `ip` and `path` are also brought to their one spelling,
 * so that a rule sees the same value by any route.
 */
export type FieldKind =
  | "bool"
  | "int"
  | "double"
  | "text"
  | "upper"
  | "lower"
  | "host"
  | "ip"
  | "path"
  | "body"
  | "texts"
  | "headers"
  | "json"
  | "jsons";

export interface FieldRow {
  readonly kind: FieldKind;
  readonly doc: string;
  /** A closed list of values: a rule that compares with another one does not compile. */
  readonly values?: readonly string[];
}

/** The type of a kind as a rule sees it. */
export const CEL_TYPES: Readonly<Record<FieldKind, string>> = {
  bool: "bool",
  int: "int",
  double: "double",
  text: "string",
  upper: "string",
  lower: "string",
  host: "string",
  ip: "string",
  path: "string",
  body: "string",
  texts: "list<string>",
  headers: "map<string, string>",
  json: "map<string, dyn>",
  jsons: "list<map<string, dyn>>",
};

const row = <K extends FieldKind>(kind: K, doc: string, values?: readonly string[]) =>
  values === undefined ? { kind, doc } : { kind, doc, values };

const VALID = row("bool", "the parser understood all of it; set to true when not given");
const TRUNCATED = row("bool", "a field of this root was cut at its bound; always present beside the others");

/** The same rows below another name. */
function under<P extends string, R extends Readonly<Record<string, FieldRow>>>(prefix: P, rows: R) {
  const entries = Object.entries(rows).map(([name, value]) => [`${prefix}.${name}`, value]);
  return Object.fromEntries(entries) as { readonly [F in keyof R & string as `${P}.${F}`]: R[F] };
}

const fileAct = (doc: string) => ({
  path: row("path", `${doc}: the path, without "." and ".." segments`),
  name: row("text", "last segment of the path"),
  ext: row("text", "extension, lower case, without its dot; empty when none"),
  mime_type: row("lower", "media type, as found, not as claimed"),
  size: row("int", "bytes"),
  content: row("body", "first 64 KiB"),
});

/** Of an act on one entry or on many. */
const TREE = {
  is_tree: row("bool", "a folder with all that is in it, or one that is made with those above it"),
} as const;
/** Of an act that moves bytes. */
const WINDOW = {
  is_whole: row("bool", "the whole file, no window of it"),
  offset: row("int", "byte of the file at which a window begins; absent of a whole file"),
} as const;

const networkEnd = (doc: string) => ({
  vm_id: row("text", `${doc}: its VM, when it is one`),
  vm_name: row("text", "name of that VM"),
  ip: row("ip", "address"),
  port: row("int", "port"),
});

const CONFIDENTIALITY = ["public", "internal", "secret"] as const;
const INTEGRITY = ["trusted", "user", "untrusted"] as const;

/** The closed list of what a rule can read. A field that is not here does not exist for any rule. */
export const FIELDS = {
  "event.type": row("text", "type of the event; always present"),

  "http.valid": VALID,
  "http.truncated": TRUNCATED,
  "http.host": row("host", "host of the request, in its one spelling"),
  "http.port": row("int", "port"),
  "http.method": row("upper", "method, upper case"),
  "http.path": row("text", "path, still encoded"),
  "http.query": row("text", "query, without the question mark"),
  "http.status": row("int", "status of the response"),
  "http.headers": row("headers", "headers by lower-case name; several values joined by a comma"),
  "http.body": row("body", "first 64 KiB of the decoded body"),
  "http.scheme": row("lower", "scheme", ["http", "https", "ws", "wss"]),

  "dns.valid": VALID,
  "dns.qname": row("host", "name that is asked for, lower case, without the last dot"),
  "dns.qtype": row("upper", "type that is asked for, such as A or TXT"),

  "mcp.valid": VALID,
  "mcp.truncated": TRUNCATED,
  "mcp.method": row("text", "JSON-RPC method, such as tools/call"),
  "mcp.transport": row("text", "how it came: from the VM, or from the host (direct)", [
    "framed",
    "http",
    "direct",
  ]),
  "mcp.server.name": row("text", "name of the MCP server"),
  "mcp.server.external": row("bool", "true for a server that is not ours"),
  "mcp.server.pinned": row("bool", "the tool's definition is the one that was approved"),
  "mcp.tool_call.name": row("text", "name of the tool at its server"),
  "mcp.tool_call.id": row("text", "id of the call"),
  "mcp.tool_list": row("texts", "names of the listed tools"),
  "mcp.request.id": row("text", "JSON-RPC id"),
  "mcp.request.method": row("text", "method of the request that this answers"),
  "mcp.request.arguments": row("json", "arguments of a call or prompt"),
  "mcp.request.uri": row("text", "URI of a resource"),
  "mcp.request.prompt": row("text", "name of a prompt"),
  "mcp.response.content": row("body", "text of the result"),
  "mcp.response.structured": row("json", "structured content of the result"),
  "mcp.response.is_error": row("bool", "the tool said that it failed"),

  "model.valid": VALID,
  "model.truncated": TRUNCATED,
  "model.provider": row("text", "provider, such as anthropic"),
  "model.name": row("text", "name of the model"),
  "model.request.body": row("body", "first 64 KiB of the request"),
  "model.request.tool_calls": row("jsons", "tool results that the request carries"),
  "model.response.body": row("body", "first 64 KiB of the response"),
  "model.response.tool_calls": row("jsons", "calls that the model asks for"),
  "model.response.input_tokens": row("int", "tokens in"),
  "model.response.output_tokens": row("int", "tokens out"),
  "model.response.cost_usd": row("double", "price in US dollars; absent when the model has no known price"),

  "file.valid": VALID,
  "file.truncated": TRUNCATED,
  "file.content": row("body", "content of whichever act this event is"),
  ...under("file.import", { ...fileAct("from the host into the VM"), ...TREE, ...WINDOW }),
  ...under("file.export", { ...fileAct("from the VM to the host"), ...TREE, ...WINDOW }),
  ...under("file.read", fileAct("read in the VM")),
  ...under("file.create", { ...fileAct("made in the VM"), ...TREE }),
  ...under("file.write", fileAct("written in the VM")),
  ...under("file.delete", { ...fileAct("removed in the VM"), ...TREE }),

  "process.valid": VALID,
  "process.truncated": TRUNCATED,
  "process.name": row("text", "process that acted; on every event that has one"),
  "process.command": row("body", "the command line"),
  "process.exec.id": row("text", "id of the job"),
  "process.exec.path": row("path", "program of the job"),
  "process.exec.user": row("text", "the user in the VM that the job runs as", ["user", "root"]),
  "process.exec.cwd": row("path", "folder in the VM that the job starts in"),
  "process.exec.env_names": row(
    "texts",
    "names of the variables that the job is given; no rule sees a value",
  ),
  "process.exec.has_stdin": row("bool", "something is written to it: given with it, or while it runs"),
  "process.exec.exit_code": row("int", "exit code"),
  "process.exec.stdout": row("body", "first 64 KiB of the output"),
  "process.exec.stderr": row("body", "first 64 KiB of the error output"),
  "process.audit.exe": row("path", "program that was started inside the VM"),
  "process.audit.argv": row("texts", "its arguments"),
  "process.audit.uid": row("int", "its user"),

  "network.valid": VALID,
  "network.id": row("text", "id of the private network"),
  "network.name": row("text", "name of the private network"),
  "network.protocol": row("text", "protocol", ["tcp", "udp", "icmp"]),
  "network.side": row("text", "which end we are", ["client", "server"]),
  "network.direction": row("text", "out of the VM or into it", ["outbound", "inbound"]),
  ...under("network.source", networkEnd("who dials")),
  ...under("network.destination", networkEnd("who is dialled")),

  "capsule.valid": VALID,
  "capsule.name": row("text", "name of the capsule"),
  "capsule.digest": row("text", "digest of its package"),
  "capsule.publisher": row("text", "who signed it"),
  "capsule.executor": row("text", "what runs it", ["handler", "wasm", "native"]),
  "capsule.level": row("int", "privilege, 0 to 4; 4 acts on the world"),
  "capsule.confirmed": row("bool", "a person confirmed exactly these arguments"),

  "label.confidentiality": row("text", "of everything that flows into this event", CONFIDENTIALITY),
  "label.integrity": row("text", "of everything that flows into this event", INTEGRITY),
  "label.sources": row("texts", "where it came from"),

  "vm.id": row("text", "id of the VM"),
  "vm.name": row("text", "name of the VM"),
  "vm.image": row("text", "image of the VM"),
  "vm.labels": row("texts", "labels that a person gave the VM"),
  "vm.lifecycle.action": row("text", "what happens to it", [
    "create",
    "start",
    "stop",
    "restart",
    "rename",
    "persist",
    "delete",
    "fork",
    "purge",
  ]),
  "vm.lifecycle.name": row(
    "text",
    "name that it gets: of create, rename and persist; vm.name is the one that it has",
  ),
  "vm.lifecycle.requester": row("text", "client that asked for it"),

  "settings.key": row(
    "text",
    "what changes: limits.idle_secs and the like, profiles.rules.NAME, mcp.servers.NAME, credentials.NAME, or corp.reload",
  ),
  "settings.source": row("text", "layer that changes", ["user", "corp"]),
} as const;

export type FieldPath = keyof typeof FIELDS;

const ROWS: ReadonlyMap<string, FieldRow> = new Map<string, FieldRow>(Object.entries(FIELDS));

export function fieldRow(path: string): FieldRow | undefined {
  return ROWS.get(path);
}

const CUTTABLE: ReadonlySet<FieldKind> = new Set(["body", "texts", "headers", "json", "jsons"]);

/** What `truncated` of the root can be about: every other kind is refused when it is too long. */
export function canBeCut(row: FieldRow): boolean {
  return CUTTABLE.has(row.kind);
}

export const FIELD_PATHS: readonly string[] = [...ROWS.keys()];
/** Inner nodes of the table, such as `mcp.tool_call`: `has` may ask for them. */
export const FIELD_STRUCTS: ReadonlySet<string> = new Set(FIELD_PATHS.flatMap(structsAbove));

/** `mcp.tool_call.name` lies in `mcp` and `mcp.tool_call`. */
export function structsAbove(path: string): string[] {
  const parts = path.split(".");
  return parts.slice(1).map((_, index) => parts.slice(0, index + 1).join("."));
}
