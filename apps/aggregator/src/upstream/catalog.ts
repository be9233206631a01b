import { Failure } from "@capsem/base";
import { itemsOf, membersOf, RPC_CODES } from "@capsem/mcp-protocol";
import { CATALOG_LIMITS } from "../limits.ts";
import { rude } from "./failure.ts";
import { internalCall, performInternal } from "./internal-call.ts";
import { capabilityNames } from "./server-facts.ts";
import type { Session } from "./session.ts";

/** What a server offers, each as it wrote it. */
export interface Catalog {
  readonly tools: string[];
  readonly resources: string[];
  readonly templates: string[];
  readonly prompts: string[];
}

/** All lists count together. */
interface Room {
  items: number;
  bytes: number;
}

/** Reads all lists that the server has. Throws "upstream_failed" for one that has no end. */
export async function readCatalog(session: Session, signal: AbortSignal): Promise<Catalog> {
  const names = capabilityNames(session.facts.capabilities);
  const room: Room = { items: 0, bytes: session.facts.instructions?.length ?? 0 };
  const list = (method: string, member: string, capability: string) =>
    names.has(capability) ? readList(session, method, member, room, signal) : [];
  const tools = session.takeTools(await list("tools/list", "tools", "tools"));
  const resources = await list("resources/list", "resources", "resources");
  const templates = await list("resources/templates/list", "resourceTemplates", "resources");
  const prompts = await list("prompts/list", "prompts", "prompts");
  return { tools, resources, templates, prompts };
}

/** The tools alone, for what they say of headers. */
export async function readTools(session: Session, signal: AbortSignal): Promise<void> {
  session.takeTools(await readList(session, "tools/list", "tools", { items: 0, bytes: 0 }, signal));
}

async function readList(
  session: Session,
  method: string,
  member: string,
  room: Room,
  signal: AbortSignal,
): Promise<string[]> {
  const found: string[] = [];
  const cursors = new Set<string>();
  for (let cursor: string | undefined; ; ) {
    const params = cursor === undefined ? undefined : `{"cursor":${cursor}}`;
    const call = internalCall(method, params, CATALOG_LIMITS.timeoutMs, signal);
    const members = await pageOf(session, call, cursor === undefined);
    if (members === null) return [];
    for (const item of itemsIn(members, member, method)) {
      room.items += 1;
      room.bytes += Buffer.byteLength(item, "utf8");
      if (room.items > CATALOG_LIMITS.itemsMax || room.bytes > CATALOG_LIMITS.bytesMax) {
        throw rude(`lists more than ${CATALOG_LIMITS.itemsMax} things or ${CATALOG_LIMITS.bytesMax} bytes`);
      }
      // What is no object is nothing that anybody could use.
      if (item.startsWith("{")) found.push(item);
    }
    cursor = cursorIn(members);
    if (cursor === undefined) return found;
    if (cursors.has(cursor) || cursors.size >= CATALOG_LIMITS.pagesMax) throw rude(`has no end in ${method}`);
    cursors.add(cursor);
  }
}

/** Null: it has no such list, whatever it said of its capabilities. */
async function pageOf(
  session: Session,
  call: ReturnType<typeof internalCall>,
  isFirst: boolean,
): Promise<ReadonlyMap<string, string> | null> {
  try {
    return membersOf(await performInternal(session, call));
  } catch (thrown) {
    const isUnknown = thrown instanceof Failure && thrown.detail === `rpc_${RPC_CODES.methodNotFound}`;
    if (isUnknown && isFirst) return null;
    throw thrown;
  }
}

function itemsIn(members: ReadonlyMap<string, string>, member: string, method: string): string[] {
  const items = members.get(member);
  if (items?.startsWith("[") !== true) throw rude(`answers ${method} without a list`);
  return itemsOf(items);
}

/** As JSON: it goes back as it came. */
function cursorIn(members: ReadonlyMap<string, string>): string | undefined {
  const cursor = members.get("nextCursor");
  return cursor?.startsWith('"') === true ? cursor : undefined;
}
