import { CODE, FIELD, type Instruction } from "../bpf.ts";

/** A system call as a filter sees it (struct seccomp_data). Arguments are 64 bits. */
export interface Call {
  readonly number: number;
  readonly arch: number;
  readonly arguments?: readonly (number | bigint)[];
}

/** Runs a program as the kernel does, on the instructions that we use; anything else is a fault of the program. */
export function interpret(program: readonly Instruction[], call: Call): number {
  let register = 0;
  for (let at = 0; at < program.length; at += 1) {
    const step = program[at];
    if (step === undefined) break;
    const { code, ifTrue, ifFalse, operand } = step;
    switch (code) {
      case CODE.load:
        register = fieldOf(call, operand);
        break;
      case CODE.and:
        register = (register & operand) >>> 0;
        break;
      case CODE.ifEqual:
        at += register === operand ? ifTrue : ifFalse;
        break;
      case CODE.ifAtLeast:
        at += register >= operand ? ifTrue : ifFalse;
        break;
      case CODE.answer:
        return operand;
      default:
        throw new Error(`no such instruction 0x${code.toString(16)}`);
    }
  }
  throw new Error("the program ends without an answer");
}

function fieldOf(call: Call, offset: number): number {
  if (offset === FIELD.number) return call.number >>> 0;
  if (offset === FIELD.arch) return call.arch >>> 0;
  if (offset < 16 || offset > 60 || offset % 4 !== 0) throw new Error(`bad load at ${offset}`);
  const value = BigInt.asUintN(64, BigInt(call.arguments?.[(offset - 16) >> 3] ?? 0));
  return Number((offset % 8 === 0 ? value : value >> 32n) & 0xffffffffn);
}
