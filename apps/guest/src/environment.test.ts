import { expect, test } from "vitest";
import { composeEnvironment, parseEnvironment } from "./environment.ts";

const account = {
  name: "user",
  uid: 1000,
  gid: 1000,
  groups: [1000],
  home: "/home/user",
  shell: "/bin/bash",
};

test("a job's entry is above the VM's, and the VM's above ours", () => {
  const vm = parseEnvironment(["PATH=/vm", "A=vm", "B=vm"]);
  const job = parseEnvironment(["B=job=more", "C="]);
  const env = composeEnvironment(account, true, vm, job);
  expect(env).toEqual([
    "PATH=/vm",
    "HOME=/home/user",
    "USER=user",
    "LOGNAME=user",
    "SHELL=/bin/bash",
    "LANG=C.UTF-8",
    "TERM=xterm-256color",
    "A=vm",
    "B=job=more",
    "C=",
  ]);
});

test("an entry of the largest size passes", () => {
  expect(parseEnvironment([`A=${"x".repeat(131_069)}`]).get("A")?.length).toBe(131_069);
});

test.each([
  ["no name", ["=x"]],
  ["no equals sign", ["A"]],
  ["nothing", [""]],
  ["a NUL", ["A=\0"]],
  ["a long name", [`${"A".repeat(257)}=1`]],
  ["a large value", [`A=${"x".repeat(131_070)}`]],
  ["LD_PRELOAD", ["LD_PRELOAD=x"]],
  ["IFS", ["IFS= "]],
  ["BASH_ENV", ["BASH_ENV=x"]],
  ["a function", ["BASH_FUNC_ls%%=() { :; }"]],
])("an environment with %s is refused, and no value is told", (_, entries) => {
  expect(() => parseEnvironment(entries)).toThrow(/^Cannot set environment/);
});

test("more than a mebibyte together is too large", () => {
  const entries = Array.from({ length: 9 }, (_, i) => `A${i}=${"x".repeat(130_000)}`);
  expect(() => parseEnvironment(entries)).toThrow(expect.objectContaining({ kind: "too_large" }));
});
