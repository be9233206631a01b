import type { Vm } from "@capsem/sdk";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type Rig, startRig, until } from "./support/rig.ts";

let rig: Rig;
let vm: Vm;
beforeAll(async () => {
  rig = await startRig();
  vm = await rig.create();
});
afterAll(() => rig.stop());

test("a terminal has its size before the first byte, follows a resize, and Ctrl-C reaches the program", async () => {
  const job = vm.stream({
    kind: "terminal",
    command: "stty size; read -r _; stty size; sleep 600; echo survived",
    terminal: { cols: 93, rows: 31 },
  });
  let screen = "";
  const reading = (async () => {
    for await (const { data } of job) screen += Buffer.from(data).toString();
  })();
  const shows = (text: string) =>
    until(`the terminal shows ${text}: ${screen}`, 15_000, () => screen.includes(text));
  await shows("31 93");
  await job.resize(120, 40);
  await job.write(Buffer.from("\r"));
  await shows("40 120");
  await until(
    "sleep runs",
    15_000,
    async () => (await vm.exec({ command: "pgrep -x sleep" })).exit_code === 0,
  );
  await job.write(Buffer.from("\x03"));
  await reading;
  const { exit_code, signal } = await job;
  // bash ends by the signal that ended its command.
  expect([exit_code, signal]).toEqual([null, 2]);
  expect(screen).not.toContain("survived");
});

test("a terminal without a command is a login shell of the user", async () => {
  const job = vm.stream({ kind: "terminal", terminal: { cols: 80, rows: 24 } });
  let screen = "";
  const reading = (async () => {
    for await (const { data } of job) screen += Buffer.from(data).toString();
  })();
  await job.write(Buffer.from("echo user:$USER term:$TERM pwd:$PWD; exit 5\r"));
  await reading;
  expect((await job).exit_code).toBe(5);
  expect(screen).toMatch(/user:user term:\S+ pwd:\/workspace/);
});
