/** States of a pool slot, apart from those of VMs: a slot is no VM until it is claimed. */
export const SLOT_MOVES = {
  preparing: ["warm", "discarded"],
  warm: ["claimed", "discarded"],
  claimed: [],
  discarded: [],
} as const;
export type SlotState = keyof typeof SLOT_MOVES;

export function isLegalSlotMove(from: SlotState, to: SlotState): boolean {
  return (SLOT_MOVES[from] as readonly string[]).includes(to);
}
