import { assert } from "@capsem/base";
import {
  ANSWER,
  and,
  answer,
  answerErrno,
  argumentField,
  argumentUpperField,
  FIELD,
  type Instruction,
  ifAtLeast,
  ifEqual,
  load,
} from "./bpf.ts";
import type { ArgumentTest, Denials, EqualTest, Profile, Rule } from "./profile.ts";
import { ARCHES, type Arch, numberOf, type Syscall } from "./syscall-table.ts";

const EPERM = 1;
/** x32: another table of calls under the same machine's name. */
const X32_BIT = 0x40000000;

const ALLOW_ELSE_DENY = { holds: answer(ANSWER.allow), otherwise: answerErrno(EPERM) };
const DENY_ELSE_ALLOW = { holds: answerErrno(EPERM), otherwise: answer(ANSWER.allow) };

/** What a profile's words stand for in one process. What names one that is not there never holds. */
export interface Subjects {
  readonly selfPid: number;
  readonly hypervisorPid?: number | undefined;
  /** The descriptor by which the hypervisor is controlled and given descriptors. */
  readonly controlSocket?: number | undefined;
  /** The descriptor on which a worker is granted channels. */
  readonly grantsSocket?: number | undefined;
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

/** A list of what is denied: everything else is allowed. `selfPid` may be the launcher's word for it. */
export function compileDenied(denials: Denials, arch: Arch, subjects: Subjects): Instruction[] {
  return [
    ...prologue(arch),
    ...denials.groups.flatMap(({ calls }) => calls.flatMap((call) => only(call, arch, answerErrno(EPERM)))),
    ...denials.onlyWhen.flatMap((rule) => compileRule(rule, arch, subjects)),
    ...denials.neverWhen.flatMap((rule) => compileRule(rule, arch, subjects, DENY_ELSE_ALLOW)),
    ...denials.refusals.flatMap(({ call, errno }) => only(call, arch, answerErrno(errno))),
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

/** Each case leads to its answer or to the next one; after the last, the other one. The number is gone by then. */
function compileRule(rule: Rule, arch: Arch, subjects: Subjects, outcome = ALLOW_ELSE_DENY): Instruction[] {
  const number = numberOf(rule.call, arch);
  if (number === null) return [];
  const body = [
    ...rule.cases.flatMap((tests) => compileCase(tests, subjects, outcome.holds)),
    outcome.otherwise,
  ];
  return [ifEqual(number, 0, body.length), ...body];
}

/** An instruction of a case, told how many follow it before the answer: where a test that fails jumps over. */
type Step = (left: number) => Instruction;

function compileCase(tests: readonly ArgumentTest[], subjects: Subjects, holds: Instruction): Instruction[] {
  assert(tests.length > 0, "a case without a test holds always");
  const steps = tests.map((test) => stepsOf(test, subjects));
  const known = steps.flatMap((each) => each ?? []);
  // Who is not there is not meant.
  return steps.includes(null) ? [] : [...known.map((step, index) => step(known.length - index)), holds];
}

function stepsOf(test: ArgumentTest, subjects: Subjects): Step[] | null {
  const { argument } = test;
  const lower: Step = () => load(argumentField(argument));
  if ("atLeast" in test) return [lower, (left) => ifAtLeast(test.atLeast, 0, left)];
  if ("isNull" in test) {
    const zero: Step = (left) => ifEqual(0, 0, left);
    return [lower, zero, () => load(argumentUpperField(argument)), zero];
  }
  const { mask } = test;
  const value = subjectOf(test.equals, subjects);
  if (value === undefined) return null;
  return [lower, ...(mask === undefined ? [] : [() => and(mask)]), (left) => ifEqual(value, 0, left)];
}

function subjectOf(equals: EqualTest["equals"], subjects: Subjects): number | undefined {
  if (equals === "self") return subjects.selfPid;
  if (equals === "hypervisor") return subjects.hypervisorPid;
  if (equals === "grants socket") return subjects.grantsSocket;
  return equals === "control socket" ? subjects.controlSocket : equals;
}
