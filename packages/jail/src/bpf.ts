import { assert } from "@capsem/base";

/**
 * The little of classic BPF that a seccomp filter needs (linux/filter.h, linux/seccomp.h): one register, loads from
 * the call's record, jumps forward. An instruction is 8 bytes in the machine's order, which is little-endian here:
 *
 *     u16 code   u8 jump if true   u8 jump if false   u32 operand
 */
export interface Instruction {
  readonly code: number;
  readonly ifTrue: number;
  readonly ifFalse: number;
  readonly operand: number;
}

export const CODE = { load: 0x20, and: 0x54, ifEqual: 0x15, ifAtLeast: 0x35, answer: 0x06 } as const;

/** Offsets in the call's record (struct seccomp_data). Of an argument we mostly look at the lower half: see profile.ts. */
export const FIELD = { number: 0, arch: 4 } as const;
export const argumentField = (index: number): number => 16 + 8 * index;
export const argumentUpperField = (index: number): number => argumentField(index) + 4;

/** What a filter answers (SECCOMP_RET_*). */
export const ANSWER = { allow: 0x7fff0000, kill: 0x80000000, errno: 0x00050000 } as const;

const JUMP_MAX = 255;

export const load = (field: number): Instruction => step(CODE.load, field);
export const and = (mask: number): Instruction => step(CODE.and, mask);
export const answer = (value: number): Instruction => step(CODE.answer, value);
export const answerErrno = (errno: number): Instruction => answer(ANSWER.errno | errno);

export function ifEqual(value: number, ifTrue: number, ifFalse: number): Instruction {
  return branch(CODE.ifEqual, value, ifTrue, ifFalse);
}

export function ifAtLeast(value: number, ifTrue: number, ifFalse: number): Instruction {
  return branch(CODE.ifAtLeast, value, ifTrue, ifFalse);
}

export function assemble(program: readonly Instruction[]): Uint8Array {
  const bytes = new Uint8Array(program.length * 8);
  const view = new DataView(bytes.buffer);
  for (const [index, { code, ifTrue, ifFalse, operand }] of program.entries()) {
    view.setUint16(index * 8, code, true);
    view.setUint8(index * 8 + 2, ifTrue);
    view.setUint8(index * 8 + 3, ifFalse);
    view.setUint32(index * 8 + 4, operand, true);
  }
  return bytes;
}

function step(code: number, operand: number): Instruction {
  return { code, ifTrue: 0, ifFalse: 0, operand: operand >>> 0 };
}

function branch(code: number, value: number, ifTrue: number, ifFalse: number): Instruction {
  assert(ifTrue <= JUMP_MAX && ifFalse <= JUMP_MAX, "a jump reaches 255 instructions");
  return { code, ifTrue, ifFalse, operand: value >>> 0 };
}
