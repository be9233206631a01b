/** An act's words for a person, from the event that was judged. */
type Fields = Readonly<Record<string, unknown>>;

export function fieldText(fields: Fields, path: string): string | null {
  const value = fields[path];
  return typeof value === "string" ? value : null;
}

/** `make test`, `import /workspace/a`, `stop`, `limits.idle_secs`; of a type without words the type. */
export function eventTitle(type: string, fields: Fields): string {
  switch (type) {
    case "process.exec":
      return fieldText(fields, "process.command") ?? "a command";
    case "process.exec_complete":
      return `the output of ${fieldText(fields, "process.command") ?? "a command"}`;
    case "file.import":
    case "file.export":
    case "file.event":
      return fileTitle(fields);
    case "vm.lifecycle":
      return fieldText(fields, "vm.lifecycle.action") ?? "a change of the VM";
    case "settings.change":
      return fieldText(fields, "settings.key") ?? "a change of settings";
    case "mcp.tool_call":
    case "mcp.tool_result":
      return toolTitle(type, fields);
    case "http.request":
      return `${fieldText(fields, "http.method") ?? "request"} ${fieldText(fields, "http.host") ?? ""}${fieldText(fields, "http.path") ?? ""}`;
    case "mcp.event":
      return [fieldText(fields, "mcp.method") ?? type, subjectOf(fields)]
        .filter((part) => part !== null)
        .join(" ");
    default:
      return type;
  }
}

function toolTitle(type: string, fields: Fields): string {
  const [server, tool] = ["mcp.server.name", "mcp.tool_call.name"].map((path) => fieldText(fields, path));
  const name = server === null || tool === null ? "a tool" : `${server}__${tool}`;
  return type === "mcp.tool_result" ? `the result of ${name}` : name;
}

function subjectOf(fields: Fields): string | null {
  return fieldText(fields, "mcp.request.uri") ?? fieldText(fields, "mcp.request.prompt");
}

const FILE_ACTS = ["import", "export", "read", "create", "write", "delete"];

function fileTitle(fields: Fields): string {
  const pathOf = (act: string) => fieldText(fields, `file.${act}.path`);
  const [from, to] = [pathOf("delete"), pathOf("create")];
  if (from !== null && to !== null) return `rename ${from} to ${to}`;
  const act = FILE_ACTS.find((each) => pathOf(each) !== null);
  return act === undefined ? "a file act" : `${act} ${pathOf(act)}`;
}

/** What a change of settings was to do, or did: a row says what was before, and what is, or was to be, after it. */
export function changeVerb(key: string, after: string | null): string {
  const own = OWN_VERBS[key];
  if (own !== undefined) return own;
  const isThing = key.startsWith("credentials.") || key.includes(".rules.");
  if (isThing) return after === null ? "delete" : "put";
  return after === null ? "reset" : "set";
}

/** Keys that are no settings: what the service did with its own. */
const OWN_VERBS: Readonly<Partial<Record<string, string>>> = {
  "corp.reload": "reload",
  "ledger.archive": "archive",
  "ledger.retention": "remove",
};
