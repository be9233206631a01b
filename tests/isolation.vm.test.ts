import type { Vm } from "@capsem/sdk";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type Rig, rounds, startRig, until } from "./support/rig.ts";

let rig: Rig;
let one: Vm;
let two: Vm;
beforeAll(async () => {
  rig = await startRig({ pool: 1 });
  [one, two] = await Promise.all([rig.create(), rig.create()]);
});
afterAll(() => rig.stop());

test("the workload sees lo and nothing else", async () => {
  expect(await rig.sh(one, "ls /sys/class/net")).toBe("lo\n");
});

test("addresses outside fail at once, never a hang", async () => {
  const started = performance.now();
  const tries = [
    "curl -sS -m 20 http://192.0.2.1/",
    "python3 -c \"import socket; socket.create_connection(('192.0.2.7', 4444), 20)\"",
    "getent hosts example.com",
  ];
  for (const command of tries) expect((await one.exec({ command })).exit_code).not.toBe(0);
  expect(performance.now() - started).toBeLessThan(15_000);
});

test("servers of the workload may use ports 80, 443 and 53", async () => {
  const serve =
    "import socket,sys; [socket.create_server(('127.0.0.1', p)) for p in (80, 443, 53)]; print('ok')";
  expect(await rig.sh(one, `sudo python3 -c "${serve}"`)).toBe("ok\n");
});

test("random numbers, machine id and hostname differ between forks", async () => {
  const ask =
    "cat /proc/sys/kernel/random/uuid /etc/machine-id; hostname; python3 -c 'import os; print(os.urandom(8).hex())'; node -p 'crypto.randomUUID()'";
  const [first, second] = await Promise.all([rig.sh(one, ask), rig.sh(two, ask)]);
  const lines = first.trim().split("\n");
  expect(lines).toHaveLength(5);
  for (const [index, line] of second.trim().split("\n").entries()) expect(line).not.toBe(lines[index]);
});

test("the clock is right", async () => {
  const before = Date.now() / 1000;
  const guest = Number(await rig.sh(one, "date +%s.%N"));
  expect(guest).toBeGreaterThan(before - 2);
  expect(guest).toBeLessThan(Date.now() / 1000 + 2);
});

test("what root writes in one VM no later VM sees", async () => {
  await rig.sh(one, "sudo sh -c 'echo poison > /etc/poison; echo poison > /usr/bin/poison; sync'");
  const later = await rig.create();
  expect((await later.exec({ command: "ls /etc/poison /usr/bin/poison" })).exit_code).not.toBe(0);
  await later.delete();
});

test("a fork bomb and a memory hog leave the VM usable", async () => {
  const seconds = rounds(10, 60);
  // One job starts both, while the VM is calm: that a command cannot start under attack is not what is asked here.
  const attack = one
    .exec({
      command: [
        // Time to see the mark while the VM is still calm.
        "touch attacked; sleep 2",
        "(while :; do python3 -c 'x=[bytearray(1<<20) for _ in range(4000)]'; done) &",
        "f(){ f|f & }; f; wait",
        "sleep 1000",
      ].join("\n"),
      timeout_secs: seconds + 7,
    })
    .catch((error: unknown) => ({ error }));
  await until("the attack begins", 20_000, () => one.files.stat("attacked").then(Boolean, () => false));
  const end = performance.now() + (seconds + 2) * 1000;
  let slowest = 0;
  while (performance.now() < end) {
    const asked = performance.now();
    await one.files.write("ping", Buffer.from("x"));
    slowest = Math.max(slowest, performance.now() - asked);
    expect((await one.info()).health).toEqual({ owner: "ok", guest: "ok" });
  }
  expect(slowest).toBeLessThan(5_000);
  expect(await attack).toMatchObject({ timed_out: true });
  const asked = performance.now();
  expect((await one.exec({ argv: ["true"] })).exit_code).toBe(0);
  expect(performance.now() - asked).toBeLessThan(5_000);
});
