import { randomBytes } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { join, relative } from "node:path";
import type { Vm } from "@capsem/sdk";
import { afterAll, beforeAll, expect, test } from "vitest";
import { isAlive, processesOfVm, type Rig, startRig, until } from "./support/rig.ts";

let rig: Rig;
beforeAll(async () => {
  rig = await startRig({
    pool: 1,
    // Rules that look at contents, so that contents are part of what is judged and stored.
    rules: `
[profiles.rules.sees-files]
action = "allow"
match = 'file.import.content.contains("a") || file.export.content.contains("a")'
[profiles.rules.sees-output]
action = "allow"
match = 'process.exec.stdout.contains("a") || process.exec.stderr.contains("a")'
[profiles.rules.asks]
action = "ask"
match = 'process.command.contains("ask-me")'
`,
  });
});
afterAll(() => rig.stop());

/** No two of its written forms are equal. */
const newSecret = () => `canary/${randomBytes(18).toString("base64url")}+é&=`;

/** As whoever searches for it would write it; none is taken from the product. */
function formsOf(secret: string): Record<string, string> {
  const bytes = Buffer.from(secret);
  const shifted = (before: number) =>
    Buffer.concat([Buffer.alloc(before), bytes])
      .toString("base64")
      .slice(before === 0 ? 0 : 4, -4);
  return {
    raw: secret,
    base64: shifted(0),
    "base64, one byte on": shifted(1),
    "base64, two bytes on": shifted(2),
    base64url: bytes.toString("base64url").slice(0, -2),
    hex: bytes.toString("hex"),
    HEX: bytes.toString("hex").toUpperCase(),
    url: encodeURIComponent(secret),
    form: new URLSearchParams([["x", secret]]).toString().slice(2),
  };
}

/** A VM that gets a secret in every way there is, and a program that gives it back in every form. */
async function useSecret(vm: Vm, secret: string): Promise<void> {
  const quoted = `'${secret}'`;
  const prints = [
    'printf "%s\\n" "$S"; printf "%s\\n" "$S" >&2',
    'printf %s "$S" | base64 -w0; printf "x%s" "$S" | base64 -w0; printf "xx%s" "$S" | base64 -w0',
    'printf %s "$S" | od -An -v -tx1 | tr -d " \\n" | tee /dev/stderr | tr a-f A-F',
    `python3 -c 'import os, urllib.parse as u, json; s = os.environ["S"]; print(u.quote(s, safe=""), u.quote_plus(s), json.dumps(s))'`,
    // In two writes, and where the machine's own messages go.
    'printf %s "$S" | cut -c1-9 | tr -d "\\n"; sleep 0.1; printf %s "$S" | cut -c10-',
    'printf "%s\\n" "$S" | sudo tee /dev/console /dev/kmsg > /tmp/kept || true',
    "exit 3",
  ].join("\n");
  expect((await vm.exec({ command: prints, env: { S: secret } })).exit_code).toBe(3);
  await vm.exec(`: ${quoted}`);
  await vm.exec({ argv: ["printf", "%s", secret] });
  await vm.exec({ command: "cat", stdin: { encoding: "utf8", data: secret } });
  await vm.exec(`printf %s ${Buffer.from(secret).toString("base64")} | base64 -d`);
  const job = vm.stream({ command: `cat; echo ${quoted}`, stdin: true });
  await job.write(secret);
  await job.closeStdin();
  await job;
  await vm.files.write("secret.txt", Buffer.from(`a ${secret}`));
  await vm.files.read("secret.txt");
  await vm.exec("cat secret.txt");
  // In errors: of a program that is not there, and a file.
  await expect(vm.exec({ argv: [secret] })).rejects.toMatchObject({ kind: expect.any(String) });
  await expect(vm.files.read(`none/${secret}`)).rejects.toMatchObject({ kind: "file_not_found" });
  await expect(
    rig.client.run({ command: `echo ${quoted}; exit 1`, env: { S: secret } }),
  ).resolves.toMatchObject({
    exit_code: 1,
  });
  await denyWithNote(vm, secret);
}

async function denyWithNote(vm: Vm, secret: string): Promise<void> {
  const asked = vm.exec(`: ask-me '${secret}'`).catch((error: unknown) => error);
  const pending = () => rig.client.asks.list({ state: "pending" });
  await until("it is asked", 20_000, async () => (await pending()).length === 1);
  const [ask] = await pending();
  await rig.client.asks.resolve(ask?.id ?? "none", { approve: false, note: `not ${secret}` });
  expect(await asked).toMatchObject({ kind: "policy" });
}

/**
 * What is the VM's own, and goes with it: its disk, where programs write; the output of its jobs, which its user may
 * fetch; its standing environment, without which it could not start again.
 */
const isOfVm = (path: string) => /^vms\/[^/]+\/(disk\.qcow2$|jobs\/|vm\.json$)/.test(path);

/** Every file of the home that holds a form of the secret, and which. */
function placesOf(secret: string): string[] {
  const forms = Object.entries(formsOf(secret));
  const found: string[] = [];
  for (const entry of readdirSync(rig.home, { recursive: true, withFileTypes: true })) {
    if (!entry.isFile()) continue;
    const path = relative(rig.home, join(entry.parentPath, entry.name));
    if (isOfVm(path)) continue;
    const bytes = readFileSync(join(rig.home, path));
    for (const [form, text] of forms) if (bytes.includes(text)) found.push(`${path}: ${form}`);
  }
  return found;
}

/** What the service says of itself and of its ledgers, in one text. */
async function everythingTold(): Promise<string> {
  const { client } = rig;
  const told: unknown[] = [await client.triage(), await client.panics(), await client.asks.list()];
  told.push(await client.credentials.list(), await client.rules.list(), await client.vms.list());
  for (const source of ["service", "owner", "ledger"] as const)
    told.push(await client.hostLogs(source, { max_bytes: 65_536 }));
  for (const { vm_id } of await client.ledgers.list())
    for await (const line of client.ledgers.export(vm_id)) told.push(line);
  return JSON.stringify(told);
}

test("a secret that nobody registered is stored as it is: in the ledger, in every form", async () => {
  const secret = newSecret();
  const vm = await rig.create({ name: "open", env: { STANDING: secret } });
  await useSecret(vm, secret);
  const told = await everythingTold();
  const missing = Object.entries(formsOf(secret)).filter(([, text]) => !told.includes(text));
  expect(missing.map(([form]) => form)).toEqual([]);
  const places = placesOf(secret).join("\n");
  expect(places).toMatch(/^ledgers\/vm_.*: raw$/m);
  expect(places).toMatch(/^asks\/ask_.*: raw$/m);
  await vm.delete();
});

test("a registered secret is in no ledger, log, panic, finding, ask or export, in no form", async () => {
  const secret = newSecret();
  const words = ["credentials", "inject", "canary", "--host", "api.example.com"];
  const injected = await rig.cli(words, { input: secret });
  expect(injected).toMatchObject({ code: 0 });
  const reference = injected.stdout.toString().trim();
  const vm = await rig.create({ name: "closed", env: { STANDING: secret } });
  await useSecret(vm, secret);
  // An owner that is killed leaves a panic and a finding.
  const { owner } = processesOfVm(rig.home, vm.id);
  process.kill(owner, "SIGKILL");
  await until("the VM ended", 10_000, async () => (await vm.info()).state === "stopped");
  const told = await everythingTold();
  for (const [form, text] of Object.entries(formsOf(secret)))
    expect([form, told.includes(text)]).toEqual([form, false]);
  expect(told).toContain(reference);
  expect((await rig.client.panics()).panics.length).toBeGreaterThan(0);
  expect(placesOf(secret)).toEqual([]);
  // The database as it lies on the disk when nobody has it open.
  const pid = rig.servicePid();
  process.kill(pid, "SIGTERM");
  await until("the service ended", 30_000, () => !isAlive(pid));
  expect(placesOf(secret)).toEqual([]);
  await rig.startService();
});
