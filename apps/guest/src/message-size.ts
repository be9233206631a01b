import type { GuestMessage } from "@capsem/wire";

/** About the bytes that a message takes in memory and on the lane: for bounds, without encoding it. */
export function messageBytes(message: GuestMessage): number {
  if (message.name === "error") return 128 + message.body.message.length;
  if (message.name !== "file_answer") return 256;
  let bytes = 256;
  for (const entry of message.body.entries ?? []) {
    bytes += 160 + entry.name.length + (entry.target?.length ?? 0);
  }
  return bytes;
}
