import type { McpPinInfo, ToolPin } from "@capsem/api";
import * as z from "zod";

const definition = z.strictObject({
  hash: z.string(),
  /** As the server wrote it. */
  text: z.string(),
  /** One field a line. */
  canonical: z.string(),
  title: z.string().nullable(),
  description: z.string().nullable(),
});
export type Definition = z.infer<typeof definition>;

const pinnedTool = z.strictObject({
  name: z.string(),
  first_seen_at: z.string(),
  /** What a person, or the first sight of the server, approved. */
  approved: definition.nullable(),
  approved_at: z.string().nullable(),
  /** What the server said when somebody last looked; null where it lists it no more. */
  current: definition.nullable(),
});
export type PinnedTool = z.infer<typeof pinnedTool>;

/** One server, as its file has it. */
export const serverRecord = z.strictObject({
  version: z.literal(1),
  server: z.string(),
  first_seen_at: z.string(),
  seen_at: z.string(),
  info: z.strictObject({
    name: z.string(),
    version: z.string(),
    protocol: z.string(),
    resources: z.number(),
    prompts: z.number(),
  }),
  tools: z.array(pinnedTool),
});
export type ServerRecord = z.infer<typeof serverRecord>;

export type PinState = McpPinInfo["pin"];

export function stateOf({ approved, current }: PinnedTool): PinState {
  if (current === null) return "gone";
  if (approved === null) return "new";
  return approved.hash === current.hash ? "pinned" : "changed";
}

/** What a client may see of it: what was approved, and of one that nobody approved what it is. */
export function shownOf({ approved, current }: PinnedTool): Definition | null {
  return approved ?? current;
}

/** As a proxy gets it: the approved text where the server's own is another one. */
export function toolPin(server: string, tool: PinnedTool, sendsText: boolean): ToolPin {
  const state = stateOf(tool);
  return {
    ...{ server, tool: tool.name, state },
    approved_hash: tool.approved?.hash ?? null,
    approved: sendsText && state === "changed" ? (tool.approved?.text ?? null) : null,
  };
}
