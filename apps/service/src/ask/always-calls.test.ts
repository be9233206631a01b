import { type AskInfo, ROUTES } from "@capsem/api";
import { expect, test } from "vitest";
import { StreamClient } from "../boundary/testing/stream-client.ts";
import { FakeLedger } from "../testing/fake-ledger.ts";
import type { Rig } from "../testing/rig.ts";
import { createVm, errorOf, useRigs } from "../testing/use-rigs.ts";

const rigWith = useRigs();
/** Asks are left open, so that each call says at once whether it is asked about. */
const LATER = { "x-capsem-requester": "gateway", "x-capsem-client": "agent/1", "x-capsem-asks": "later" };

interface Call {
  readonly method: "POST" | "PUT" | "DELETE" | "PATCH" | "GET";
  readonly path: string;
  readonly body?: object;
  readonly bytes?: Buffer;
}

async function start(match: string) {
  const ledger = new FakeLedger();
  const rig = await rigWith({ powers: { startLedger: ledger.startLedger } });
  const [id, other] = [await createVm(rig, { name: "dev" }), await createVm(rig, { name: "other" })];
  await putRule(rig, "guard", { action: "ask", match, priority: 20 });
  return { rig, id, other };
}

async function putRule({ client }: Rig, name: string, rule: object): Promise<void> {
  const reply = await client.call("PUT", `/rules/profiles.rules.${name}`, { body: rule });
  expect(reply.status, reply.bytes.toString()).toBe(200);
}

/** The id of the ask, or null where the call was not asked about. */
async function askOf({ client }: Rig, { method, path, body, bytes }: Call): Promise<string | null> {
  const reply = await client.call(method, path, {
    headers: LATER,
    ...(bytes === undefined ? (body === undefined ? {} : { body }) : { bytes }),
  });
  if (reply.status !== 403) return null;
  const { error } = reply.json<{ error: { kind: string; ask_id?: string } }>();
  expect(error.kind).toBe("policy");
  return error.ask_id ?? null;
}

const resolve = ({ client }: Rig, ask: string, scope: AskInfo["scope"]) =>
  client.call("POST", `/asks/${ask}/resolve`, { body: { approve: true, scope } });

async function approvedForAlways(rig: Rig, call: Call): Promise<void> {
  const ask = await askOf(rig, call);
  if (ask === null) throw new Error("it was not asked about");
  const reply = await resolve(rig, ask, "always");
  expect(reply.status, reply.bytes.toString()).toBe(200);
}

async function refusedForAlways(rig: Rig, call: Call, words: string): Promise<void> {
  const ask = (await askOf(rig, call)) ?? "";
  const { asks } = ROUTES.asks.result.parse((await rig.client.get("/asks/list?state=pending")).json());
  expect(asks.find(({ id }) => id === ask)?.scopes).not.toContain("always");
  const reply = await resolve(rig, ask, "always");
  expect(reply.status, JSON.stringify(call)).toBe(409);
  expect(errorOf(reply).reason).toContain(words);
}

const exec = (id: string, more: object = {}): Call => ({
  method: "POST",
  path: `/vms/${id}/exec`,
  body: { command: "cat -; echo deploy", ...more },
});
const STDIN = { stdin: { encoding: "utf8", data: "x" } };

test("a command that is approved for always runs in its VM without a question, of its result neither, and nowhere else", async () => {
  // It matches what comes back as well.
  const { rig, id, other } = await start('process.command.contains("deploy")');
  await approvedForAlways(rig, exec(id));
  for (let times = 0; times < 2; times += 1) {
    const reply = await rig.client.call("POST", `/vms/${id}/exec`, { ...exec(id), headers: LATER });
    expect(reply.json(), reply.bytes.toString()).toMatchObject({
      exit_code: 0,
      stdout: { data: "deploy\n" },
    });
  }
  for (const call of [
    exec(other),
    exec(id, STDIN),
    exec(id, { env: { LD: "x" } }),
    exec(id, { user: "root" }),
    exec(id, { cwd: "/" }),
    exec(id, { command: "cat -; echo deploy " }),
  ]) {
    expect(await askOf(rig, call), JSON.stringify(call)).not.toBeNull();
  }
  const stream = async (more: object) => {
    const client = new StreamClient(rig.layout.socket, id);
    await client.send({ type: "start", kind: "exec", command: "cat -; echo deploy", ...more });
    await expect.poll(() => client.messages.length, { timeout: 30_000 }).toBeGreaterThan(0);
    client.socket.close();
    return client.messages[0]?.type;
  };
  expect(await stream({})).toBe("started");
  // The attack: what is written to it is another command.
  const held = stream({ stdin: true });
  const waiting = async () =>
    ROUTES.asks.result
      .parse((await rig.client.get("/asks/list?state=pending")).json())
      .asks.find(({ is_held }) => is_held);
  await expect.poll(waiting, { timeout: 30_000 }).toBeDefined();
  const ask = await waiting();
  expect(ask?.scopes).toEqual(["once", "vm"]);
  await rig.client.call("POST", `/asks/${ask?.id}/resolve`, { body: { approve: false } });
  expect(await held).toBe("error");
});

test("what a rule cannot name is approved for one call or the VM alone", async () => {
  const { rig, id } = await start("true");
  await refusedForAlways(rig, exec(id, STDIN), "no rule can name its input");
  await refusedForAlways(rig, exec(id, { env: { A: "b" } }), "no rule can name its environment");
  const content = `/vms/${id}/files/content?path=a`;
  await refusedForAlways(rig, { method: "PUT", path: content, bytes: Buffer.from("x") }, "its content");
  await refusedForAlways(rig, { method: "GET", path: `${content}&length=1` }, "its length");
  const edits = [{ key: "limits.idle_secs", value: 60 }];
  await refusedForAlways(rig, { method: "PATCH", path: "/settings/edit", body: { edits } }, "its change");
  await refusedForAlways(rig, { method: "POST", path: "/corp/reload" }, "its files");
  await refusedForAlways(rig, { method: "POST", path: "/vms/create", body: {} }, "only being made");
  await refusedForAlways(
    rig,
    { method: "DELETE", path: `/vms/${id}/delete` },
    "afterwards there is no such VM",
  );
});

test("an act on a VM or a file that is approved for always is that act: not another name, and not more", async () => {
  const { rig, id, other } = await start(
    'vm.lifecycle.action == "rename" || event.type == "file.event" || event.type == "file.export"',
  );
  const rename = (vm: string, name: string): Call => ({
    method: "POST",
    path: `/vms/${vm}/rename`,
    body: { name },
  });
  await approvedForAlways(rig, rename(id, "fresh"));
  expect(await askOf(rig, rename(id, "fresh"))).toBeNull();
  expect(await askOf(rig, rename(id, "prod"))).not.toBeNull();
  expect(await askOf(rig, rename(other, "fresh"))).not.toBeNull();
  const content = (vm: string, more = ""): string => `/vms/${vm}/files/content?path=a.txt${more}`;
  for (const vm of [id, other]) {
    await rig.client.call("PUT", content(vm), { bytes: Buffer.from("x") });
  }
  const move = {
    method: "POST",
    path: `/vms/${id}/files/rename`,
    body: { path: "a.txt", to: "b.txt" },
  } as const;
  await approvedForAlways(rig, { method: "DELETE", path: content(id) });
  for (const call of [
    move,
    { method: "DELETE", path: content(id, "&recursive=true") } as const,
    { method: "DELETE", path: content(other) } as const,
  ]) {
    expect(await askOf(rig, call), JSON.stringify(call)).not.toBeNull();
  }
  await approvedForAlways(rig, { method: "GET", path: content(id) });
  expect(await askOf(rig, { method: "GET", path: content(id) })).toBeNull();
  for (const path of [content(id, "&offset=1"), content(other), `/vms/${id}/files/tree?path=a.txt`]) {
    expect(await askOf(rig, { method: "GET", path }), path).not.toBeNull();
  }
});

test("an approval for always opens no door for what the command writes", async () => {
  const { rig, id } = await start('process.command.contains("deploy")');
  await putRule(rig, "keys", {
    action: "block",
    match: 'process.exec.stdout.contains("deploy")',
    priority: 20,
  });
  await approvedForAlways(rig, exec(id));
  const reply = await rig.client.call("POST", `/vms/${id}/exec`, { ...exec(id), headers: LATER });
  expect(errorOf(reply)).toMatchObject({ kind: "policy", rule_id: "profiles.rules.keys" });
});
