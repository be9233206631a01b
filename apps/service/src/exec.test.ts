import type { ClientRequest } from "node:http";
import { expect, test } from "vitest";
import { createVm, errorOf, useRigs } from "./testing/use-rigs.ts";

const rigWith = useRigs();

interface Data {
  encoding: string;
  data: string;
  truncated: boolean;
}
interface Result {
  exit_code: number | null;
  signal: number | null;
  timed_out: boolean;
  duration_ms: number;
  agent_ms: number;
  stdout: Data;
  stderr: Data;
}

test("bytes, characters, signals and limits come back as they are", async () => {
  const rig = await rigWith();
  const id = await createVm(rig);
  const exec = async (body: unknown) => (await rig.client.post(`/vms/${id}/exec`, body)).json<Result>();

  const binary = await exec({ argv: ["printf", "\\377\\000\\001"] });
  expect(binary.stdout).toEqual({ encoding: "base64", data: "/wAB", truncated: false });
  const text = await exec({ command: "printf 'Grüße 🌍'" });
  expect(text.stdout).toEqual({ encoding: "utf8", data: "Grüße 🌍", truncated: false });
  expect((await exec({ command: "kill -TERM $$" })).signal).toBe(15);
  expect(await exec({ argv: ["sleep", "60"], timeout_secs: 0.2 })).toMatchObject({
    timed_out: true,
    signal: 9,
  });
  const large = await exec({ command: "head -c 3000000 /dev/zero | tr '\\0' é" });
  expect(large.stdout).toMatchObject({ truncated: true, total_bytes: 3_000_000 });
  for (const ms of [large.duration_ms, large.agent_ms]) expect(String(ms)).toMatch(/^[0-9]+(\.[0-9])?$/);
  expect(large.stderr.truncated).toBe(false);
  const fed = await exec({ argv: ["cat"], stdin: { encoding: "base64", data: "/wAB" } });
  expect(fed.stdout.data).toBe("/wAB");
  const unread = await exec({ argv: ["true"], stdin: { encoding: "utf8", data: "x".repeat(1_000_000) } });
  expect(unread.exit_code).toBe(0);
  const env = await exec({ command: 'echo "$A$B"', env: { A: "1", B: "=2" } });
  expect(env.stdout.data).toBe("1=2\n");
});

test("bad commands are refused with their kind", async () => {
  const rig = await rigWith();
  const id = await createVm(rig);
  const refused = async (body: unknown) => errorOf(await rig.client.post(`/vms/${id}/exec`, body)).kind;
  expect(await refused({})).toBe("invalid_input");
  expect(await refused({ command: "true", argv: ["true"] })).toBe("invalid_input");
  expect(await refused({ argv: ["no-such-program-here"] })).toBe("command_not_found");
  expect(await refused({ command: "true", env: { IFS: "x" } })).toBe("invalid_input");
  expect(await refused({ command: "cat", stdin: { encoding: "base64", data: "!!!" } })).toBe("invalid_input");
});

test.each(["1e300", "1.5", "0", "-1", "soon"])("a time left of %s is refused", async (time) => {
  const rig = await rigWith();
  const headers = { "x-capsem-time-left-ms": time };
  const refused = await rig.client.call("GET", "/status", { headers });
  expect(errorOf(refused)).toMatchObject({ kind: "invalid_input", status: 400 });
});

test("a deadline beyond what a timer takes lets a command end by itself", async () => {
  const rig = await rigWith();
  const id = await createVm(rig);
  for (const time of ["2147483647", "3000000000", "4294967296"]) {
    const headers = { "x-capsem-time-left-ms": time };
    const body = { command: "sleep 0.05; echo done" };
    const reply = await rig.client.call("POST", `/vms/${id}/exec`, { headers, body });
    expect(reply.json<Result>().stdout.data, time).toBe("done\n");
  }
});

test("64 commands at once all end", async () => {
  const rig = await rigWith();
  const id = await createVm(rig);
  const all = await Promise.all(
    Array.from({ length: 64 }, (_, index) =>
      rig.client.post(`/vms/${id}/exec`, { argv: ["echo", String(index)] }),
    ),
  );
  expect(all.map((reply) => reply.json<Result>().stdout.data)).toEqual(all.map((_, index) => `${index}\n`));
});

test("a client that leaves kills its command's whole tree", async () => {
  const rig = await rigWith();
  const id = await createVm(rig);
  let request: ClientRequest | undefined;
  const call = rig.client.call("POST", `/vms/${id}/exec`, {
    body: { command: "touch started; sleep 300 & sleep 300" },
    onRequest: (outgoing) => {
      request = outgoing;
    },
  });
  const jobs = async () =>
    (await rig.client.get(`/vms/${id}/jobs/list`)).json<{ jobs: { state: string }[] }>().jobs;
  await expect.poll(async () => (await jobs())[0]?.state, { timeout: 30_000 }).toBe("running");
  request?.destroy();
  await expect(call).rejects.toThrow();
  await expect.poll(async () => (await jobs())[0]?.state, { timeout: 30_000 }).toBe("done");
});

test("the end of a VM ends its waiting calls with the reason", async () => {
  const rig = await rigWith();
  const id = await createVm(rig, { name: "doomed" });
  const waiting = rig.client.post(`/vms/${id}/exec`, { argv: ["sleep", "300"] });
  const killer = rig.client.post(`/vms/${id}/exec`, { argv: ["!gone", "out_of_memory"] });
  for (const reply of await Promise.all([waiting, killer])) {
    expect(errorOf(reply)).toMatchObject({ kind: "vm_gone", status: 502 });
    expect(errorOf(reply).reason).toContain("out_of_memory");
  }
});

test("run destroys its VM on success, failure, time limit and a client that leaves", async () => {
  const rig = await rigWith();
  const { client } = rig;
  const run = async (body: unknown) => (await client.post("/run", body)).json<Result>();
  const nothingLeft = () => expect(rig.counts()).toMatchObject({ folders: 0, processes: 0 });
  expect(await run({ command: "echo $X", vm_env: { X: "7" } })).toMatchObject({
    exit_code: 0,
    stdout: { data: "7\n" },
  });
  nothingLeft();
  expect(await run({ command: "exit 9" })).toMatchObject({ exit_code: 9 });
  expect(await run({ argv: ["sleep", "60"], timeout_secs: 0.2 })).toMatchObject({ timed_out: true });
  expect(errorOf(await client.post("/run", { argv: ["!crash"] })).kind).toBe("vm_gone");
  nothingLeft();

  const whileRunning = client.call("POST", "/run", {
    body: { argv: ["sleep", "300"] },
    onRequest: (outgoing) => {
      void expect
        .poll(() => rig.service.registry.list()[0]?.activeCount, { timeout: 30_000 })
        .toBe(1)
        .then(() => outgoing.destroy());
    },
  });
  await expect(whileRunning).rejects.toThrow();
  const whileStarting = client.call("POST", "/run", {
    body: { argv: ["sleep", "300"] },
    onRequest: (outgoing) => {
      void expect
        .poll(() => rig.service.registry.list().some((vm) => vm.starting !== null), {
          interval: 1,
          timeout: 30_000,
        })
        .toBe(true)
        .then(() => outgoing.destroy());
    },
  });
  await expect(whileStarting).rejects.toThrow();
  await expect.poll(() => rig.service.registry.list().length, { timeout: 30_000 }).toBe(0);
  await expect.poll(() => rig.counts(), { timeout: 30_000 }).toMatchObject({ folders: 0, processes: 0 });
});
