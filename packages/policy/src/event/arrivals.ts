/**
 * What brings the events and fields that nothing in this version makes. Whoever makes one takes its word away, here or
 * in the event table; with it goes what the docs and the linter say.
 */
export const ARRIVES = {
  network: "with the network",
  mcp: "with MCP servers",
  models: "with models",
  capsules: "with capsules",
  labels: "with labels",
  inside: "with a view into VMs",
  later: "in a later version",
} as const;
export type Arrival = (typeof ARRIVES)[keyof typeof ARRIVES];

/** Fields, or all below a name, that no event has yet, although types that are made may carry them. */
export const FIELDS_TO_COME: Readonly<Record<string, Arrival>> = {
  label: ARRIVES.labels,
  "vm.labels": ARRIVES.later,
  "process.name": ARRIVES.inside,
  "file.import.mime_type": ARRIVES.inside,
  "file.export.mime_type": ARRIVES.inside,
  "file.read": ARRIVES.inside,
  "file.write": ARRIVES.inside,
  "file.create.mime_type": ARRIVES.inside,
  "file.create.size": ARRIVES.inside,
  "file.create.content": ARRIVES.inside,
  "file.delete.mime_type": ARRIVES.inside,
  "file.delete.size": ARRIVES.inside,
  "file.delete.content": ARRIVES.inside,
};
