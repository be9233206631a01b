import type { JSONRPCMessage } from "./mcp-sdk.ts";
import { ToolFailure } from "./tool-failure.ts";

/** Of a call's `_meta`: the path of an argument that the schemas would drop without a word. */
const META_KEY = "dev.capsem/proto-argument";
const NAME = "__proto__";
const PATH_CHARS_MAX = 128;

/**
 * JSON may name a member `__proto__`, and everything that copies or checks objects leaves it out. The message as it was
 * read is the last place to see it, so a call is marked here and refused where its arguments are.
 */
export function markProtoArgument(message: JSONRPCMessage): void {
  if (!("method" in message) || message.method !== "tools/call") return;
  const params = message.params as Record<string, unknown> | undefined;
  const path = pathOfProto(params?.arguments);
  if (params === undefined || path === null) return;
  const meta = params._meta ?? {};
  if (typeof meta === "object") params._meta = { ...meta, [META_KEY]: path };
}

export function refuseMarked(tool: string, meta: Readonly<Record<string, unknown>> | undefined): void {
  const path = meta?.[META_KEY];
  if (path === undefined) return;
  const reason = `Cannot use ${tool}: ${String(path).slice(0, PATH_CHARS_MAX)}: there is no such argument`;
  throw new ToolFailure({ kind: "invalid_input", reason, retryable: false });
}

/** Without recursion: the depth is the sender's. */
function pathOfProto(root: unknown): string | null {
  const open = [{ value: root, path: "" }];
  for (let next = open.pop(); next !== undefined; next = open.pop()) {
    const { value, path } = next;
    if (typeof value !== "object" || value === null) continue;
    if (Object.hasOwn(value, NAME)) return path + NAME;
    for (const [name, inner] of Object.entries(value))
      if (typeof inner === "object" && inner !== null)
        open.push({ value: inner, path: path.length > PATH_CHARS_MAX ? path : `${path}${name}.` });
  }
  return null;
}
