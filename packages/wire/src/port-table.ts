/** The only source of port numbers (wire spec, "Ports"). */
export const PORTS = {
  control: {
    number: 5000,
    lane: "control",
    openedBy: "guest",
    payload: "length + MessagePack control messages",
  },
  terminal: { number: 5001, lane: "bulk", openedBy: "host", payload: "PTY bytes" },
  traffic: {
    number: 5002,
    lane: "traffic",
    openedBy: "guest",
    payload: "metadata line, then TLS, HTTP/1.x or MCP frames",
  },
  retired: { number: 5003, lane: "none", openedBy: "nobody", payload: "stays closed" },
  lifecycle: { number: 5004, lane: "control", openedBy: "guest", payload: "reserved: suspend request" },
  job: { number: 5005, lane: "bulk", openedBy: "host", payload: "typed chunks: stdin, stdout, stderr" },
  audit: { number: 5006, lane: "bulk", openedBy: "guest", payload: "reserved: execve records" },
  dns: {
    number: 5007,
    lane: "traffic",
    openedBy: "guest",
    payload: "reserved: length + MessagePack envelope",
  },
  publish: {
    number: 5008,
    lane: "bulk",
    openedBy: "host",
    payload: "reserved: bytes of a published guest port",
  },
  file: { number: 5009, lane: "bulk", openedBy: "host", payload: "file, tree and environment bytes" },
} as const;

export type PortName = keyof typeof PORTS;
export type LaneName = "control" | "bulk" | "traffic";
export const LANES: readonly LaneName[] = ["control", "bulk", "traffic"];
