import type { WorkerPlan } from "@capsem/api";
import type { EventType } from "@capsem/policy";
import type { DeclaredServer } from "../catalog/server-book.ts";
import { type Asker, type Fields, fieldsOf } from "./judge.ts";

/** What a request of a client is about: the server whose it is, and the one thing of it. */
export interface Subject {
  readonly server: Pick<DeclaredServer, "name" | "isExternal">;
  readonly target?: Target;
}
export type Target =
  | { readonly kind: "tool"; readonly name: string; readonly isPinned: boolean }
  | { readonly kind: "resource"; readonly uri: string }
  | { readonly kind: "prompt"; readonly name: string };

export interface Asked {
  readonly method: string;
  /** JSON-RPC id, as a rule reads it. */
  readonly id?: string;
  readonly arguments?: Readonly<Record<string, unknown>>;
}

export interface Draft {
  readonly type: EventType;
  readonly fields: Fields;
}

/** A request, before it is done. `tools/call` is a type of its own. */
export function requestDraft(
  vm: WorkerPlan["vm"],
  asker: Asker,
  asked: Asked,
  subject: Subject | null,
): Draft {
  const fields = fieldsOf(vm, asker);
  fields["mcp.method"] = asked.method;
  if (asked.id !== undefined) fields["mcp.request.id"] = asked.id;
  if (asked.arguments !== undefined) fields["mcp.request.arguments"] = asked.arguments;
  if (subject === null) return { type: "mcp.event", fields };
  fields["mcp.server.name"] = subject.server.name;
  fields["mcp.server.external"] = subject.server.isExternal;
  const { target } = subject;
  switch (target?.kind) {
    case "tool":
      fields["mcp.server.pinned"] = target.isPinned;
      fields["mcp.tool_call.name"] = target.name;
      return { type: "mcp.tool_call", fields };
    case "resource":
      fields["mcp.request.uri"] = target.uri;
      break;
    case "prompt":
      fields["mcp.request.prompt"] = target.name;
      break;
    case undefined:
      break;
  }
  return { type: "mcp.event", fields };
}

/**
 * What came back, before the client sees it: the fields of its request, and the result's own. Arguments are in the event
 * of the request, and come again only where rules read them.
 */
export function resultDraft(request: Draft, method: string, result: Fields, readsArguments: boolean): Draft {
  const fields: Fields = { ...request.fields, ...result, "mcp.request.method": method };
  if (!readsArguments) fields["mcp.request.arguments"] = undefined;
  return { type: request.type === "mcp.tool_call" ? "mcp.tool_result" : "mcp.event", fields };
}
