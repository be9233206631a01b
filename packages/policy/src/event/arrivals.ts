/**
 * What brings the events and fields that nothing in this version makes. Whoever makes one takes its word away, here or
 * in the event table; with it goes what the docs and the linter say.
 */
export const ARRIVES = {
  network: "with the network",
  models: "with models",
  capsules: "with capsules",
  labels: "with labels",
  inside: "with a view into VMs",
  later: "in a later version",
} as const;
export type Arrival = (typeof ARRIVES)[keyof typeof ARRIVES];

export interface ToCome {
  readonly arrival: Arrival;
  /** Types of events that have it already. */
  readonly already?: readonly string[];
}

const MCP = ["mcp.event", "mcp.tool_list", "mcp.tool_call", "mcp.tool_result"] as const;

/** Fields, or all below a name, that no event has yet but those named, although types that are made may carry them. */
export const FIELDS_TO_COME: Readonly<Record<string, ToCome>> = {
  label: { arrival: ARRIVES.labels, already: MCP },
  "vm.labels": { arrival: ARRIVES.later },
  "process.name": { arrival: ARRIVES.inside, already: MCP },
  "http.status": { arrival: ARRIVES.network },
  "http.body": { arrival: ARRIVES.network },
  network: { arrival: ARRIVES.network },
  "file.import.mime_type": { arrival: ARRIVES.inside },
  "file.export.mime_type": { arrival: ARRIVES.inside },
  "file.read": { arrival: ARRIVES.inside },
  "file.write": { arrival: ARRIVES.inside },
  "file.create.mime_type": { arrival: ARRIVES.inside },
  "file.create.size": { arrival: ARRIVES.inside },
  "file.create.content": { arrival: ARRIVES.inside },
  "file.delete.mime_type": { arrival: ARRIVES.inside },
  "file.delete.size": { arrival: ARRIVES.inside },
  "file.delete.content": { arrival: ARRIVES.inside },
};
