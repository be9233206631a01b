import { assert } from "@capsem/base";
import {
  ANSWER,
  and,
  answer,
  answerErrno,
  argumentField,
  FIELD,
  type Instruction,
  ifAtLeast,
  ifEqual,
  load,
} from "./bpf.ts";
import type { ArgumentTest, Profile, Rule } from "./profile.ts";
import { ARCHES, type Arch, numberOf, type Syscall } from "./syscall-table.ts";

const EPERM = 1;
/** x32: another table of calls under the same machine's name. */
const X32_BIT = 0x40000000;

/** What a profile's words stand for in one process. Without a hypervisor nothing that names it is allowed. */
export interface Subjects {
  readonly selfPid: number;
  readonly hypervisorPid?: number | undefined;
}

/** The profile's list: what is not on it fails with EPERM. */
export function compileAllowed(profile: Profile, arch: Arch, subjects: Subjects): Instruction[] {
  return [
    ...prologue(arch),
    ...profile.groups.flatMap(({ calls }) => calls.flatMap((call) => only(call, arch, answer(ANSWER.allow)))),
    ...profile.rules.flatMap((rule) => compileRule(rule, arch, subjects)),
    ...profile.refusals.flatMap(({ call, errno }) => only(call, arch, answerErrno(errno))),
    answerErrno(EPERM),
  ];
}

/** The second filter: what is fatal ends the process, everything else is the first one's to judge. */
export function compileFatal(profile: Profile, arch: Arch): Instruction[] {
  return [
    ...prologue(arch),
    ...profile.fatal.flatMap((call) => only(call, arch, answer(ANSWER.kill))),
    answer(ANSWER.allow),
  ];
}

/** A number means what we think only on the machine that its table is of. */
function prologue(arch: Arch): Instruction[] {
  return [
    load(FIELD.arch),
    ifEqual(ARCHES[arch].audit, 1, 0),
    answer(ANSWER.kill),
    load(FIELD.number),
    ...(arch === "x64" ? [ifAtLeast(X32_BIT, 0, 1), answer(ANSWER.kill)] : []),
  ];
}

function only(call: Syscall, arch: Arch, then: Instruction): Instruction[] {
  const number = numberOf(call, arch);
  return number === null ? [] : [ifEqual(number, 0, 1), then];
}

/** Each case leads to "allow" or to the next one; after the last, EPERM. The number in the register is gone by then. */
function compileRule(rule: Rule, arch: Arch, subjects: Subjects): Instruction[] {
  const number = numberOf(rule.call, arch);
  if (number === null) return [];
  const body = [...rule.cases.flatMap((tests) => compileCase(tests, subjects)), answerErrno(EPERM)];
  return [ifEqual(number, 0, body.length), ...body];
}

function compileCase(tests: readonly ArgumentTest[], subjects: Subjects): Instruction[] {
  assert(tests.length > 0, "a case without a test allows everything");
  const values = tests.map(({ equals }) => subjectOf(equals, subjects));
  if (values.includes(undefined)) return [];
  const lengths = tests.map(({ mask }) => (mask === undefined ? 2 : 3));
  const total = lengths.reduce((sum, length) => sum + length, 1);
  let at = 0;
  const steps = tests.flatMap(({ argument, mask }, index) => {
    at += lengths[index] ?? 0;
    const failed = ifEqual(values[index] ?? 0, 0, total - at);
    return [load(argumentField(argument)), ...(mask === undefined ? [] : [and(mask)]), failed];
  });
  return [...steps, answer(ANSWER.allow)];
}

function subjectOf(equals: ArgumentTest["equals"], subjects: Subjects): number | undefined {
  if (equals === "self") return subjects.selfPid;
  return equals === "hypervisor" ? subjects.hypervisorPid : equals;
}
