import { spawnSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { appendFileSync, mkdtempSync, realpathSync, rmSync, statfsSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { sha256 } from "@capsem/api/ledger-chain";
import { builtPath } from "@capsem/native";
import { expect, onTestFinished, test } from "vitest";
import { createBoundary } from "../boundary/boundary.ts";
import { fileDraft } from "../boundary/file-draft.ts";
import type { AnyRow } from "../boundary/parts.ts";
import { contextOf } from "../boundary/testing/contexts.ts";
import { FakeAsks, FakePolicy } from "../boundary/testing/fake-parts.ts";
import { EXEC } from "../boundary/testing/gate.ts";
import { lifecycleDraft } from "../boundary/vm-draft.ts";
import { SecretRedactor } from "../credential/redactor.ts";
import { createHome, homeLayout } from "../home/layout.ts";
import { nodePowers } from "../powers-node.ts";
import {
  append,
  decision,
  hashes,
  kindOf,
  kindOfLater,
  lifecycle,
  numbered,
  useLedgers,
  VM,
} from "../testing/ledger-rig.ts";
import { openKeys } from "./key-files.ts";
import type { LedgerClient } from "./ledger-client.ts";
import { startLedger } from "./start-ledger.ts";

const rigOf = useLedgers();
const full = (count: number) => Array.from({ length: count }, () => "disk_full");

test("a ledger that finds no room on the disk refuses work, keeps what was taken, and goes on by itself", async () => {
  const { client, fake, log } = await rigOf();
  client.appendAll(VM, [decision("running")]);
  await client.flush(VM);
  fake.faults.appendFailures = full(1_000);
  append(client, 0, 3);
  expect(await kindOfLater(client.flush(VM))).toBe("ledger_full");
  // Known at once, and not after a wait: nobody has to find out with an act of theirs.
  expect(await kindOfLater(client.ready(VM))).toBe("done");
  expect(kindOf(() => client.appendAll(VM, [decision("exec")]))).toBe("ledger_full");
  expect(kindOf(() => client.appendAll(VM, [decision("stop", "vm.lifecycle")]))).toBe("ledger_full");
  expect(() => client.appendAll(VM, [decision("exec")])).toThrow(/the disk has no room/);
  expect(client.status).toMatchObject({ state: "away", reason: expect.stringContaining("no room") });
  // What was begun is ended in evidence, as soon as there is room.
  client.appendAll(VM, [lifecycle("running", "stop")]);
  expect(await kindOfLater(client.finish(VM))).toBe("ledger_full");
  fake.faults.appendFailures = [];
  await expect.poll(() => client.status, { timeout: 5_000 }).toEqual({ state: "ok", reason: null });
  await client.flush(VM);
  expect(hashes(fake)).toEqual(numbered(3));
  expect(fake.rows(VM, "lifecycle_events")).toHaveLength(1);
  const said = log.map(({ message }) => message);
  expect(said.filter((message) => message === "a ledger has no room on the disk")).toHaveLength(1);
  expect(said).toContain("a ledger has room again");
  expect(said).not.toContain("rows were lost");
});

test("a ledger that cannot even be made for want of room is full, and is made when there is some", async () => {
  const { client, fake } = await rigOf({ openFailures: full(3) });
  expect(await kindOfLater(client.ready(VM))).toBe("done");
  expect(kindOf(() => client.appendAll(VM, [decision("exec")]))).toBe("ledger_full");
  expect(client.status.state).toBe("away");
  await expect.poll(() => client.status.state, { timeout: 5_000 }).toBe("ok");
  expect(kindOf(() => client.appendAll(VM, [decision("exec")]))).toBe("taken");
  await client.flush(VM);
  expect(fake.rows(VM)).toHaveLength(1);
});

test("a ledger fails for no said reason on a disk with room: that is no full disk", async () => {
  const { client, fake } = await rigOf();
  await client.ready(VM);
  fake.faults.appendFailures = ["ledger_failed"];
  append(client, 0, 1);
  await client.flush(VM);
  expect(client.status).toEqual({ state: "ok", reason: null });
});

/** The folder of ledgers is a small disk of its own. */
async function smallDisk(skip: (reason: string) => void) {
  const home = realpathSync(mkdtempSync(join(tmpdir(), "capsem-small-disk-")));
  onTestFinished(() => rmSync(home, { recursive: true, force: true }));
  const layout = homeLayout(home);
  await createHome(layout, process.getuid?.() ?? -1);
  const options = ["-t", "tmpfs", "-o", "size=4m,mode=700", "tmpfs", layout.ledgers];
  if (spawnSync("mount", options).status !== 0) {
    const reason = "a full disk, because no small one can be mounted here";
    console.log(`skipped: ${reason}`);
    skip(reason);
  }
  onTestFinished(() => void spawnSync("umount", ["-l", layout.ledgers]));
  const program = builtPath("ledger.cjs");
  const lost: unknown[] = [];
  const client = startLedger({
    layout,
    powers: nodePowers(program, program),
    key: openKeys(layout.keys, process.getuid?.() ?? -1).head,
    vmBytesMax: 1024 ** 3,
    allowUnconfined: () => false,
    log: (_level, message, fields = {}) => {
      if (message === "rows were lost") lost.push(fields);
    },
  });
  onTestFinished(async () => {
    await client.close();
    expect(lost).toEqual([]);
  });
  return { client, ledgers: layout.ledgers };
}

function stored(text: string): AnyRow {
  const facts = { hash: sha256(text), kind: "event", original_bytes: text.length, is_truncated: false };
  return { table: "event_body_blobs", row: { ...facts, body: text } };
}

const FACTS = { id: VM, name: "box", image: "sha256:aa" };

/** A boundary before this ledger, with nothing but it. */
function gateTo(ledger: LedgerClient) {
  const log: string[] = [];
  const boundary = createBoundary({
    ...{ policy: new FakePolicy(), asks: new FakeAsks(), redactor: new SecretRedactor(), ledger },
    ...{ nowMs: () => 1, monotonicMs: () => 1, random: randomBytes, digestKey: Buffer.alloc(32, 1) },
    log: (_level, message) => void log.push(message),
  });
  return { boundary, log };
}

/** To the last byte, whoever writes beside it. */
function fill(folder: string): string {
  const path = join(folder, "filler");
  const block = Buffer.alloc(statfsSync(folder).bsize);
  expect(() => {
    for (;;) appendFileSync(path, block);
  }).toThrow(/ENOSPC/);
  expect(statfsSync(folder).bavail).toBe(0);
  return path;
}

test("on a disk that was filled to the last byte nothing is ledger_away, and all is well when it is emptied", async ({
  skip,
}) => {
  const { client, ledgers } = await smallDisk(skip);
  await client.ready("host");
  client.appendAll("host", [stored("small")]);
  await client.flush("host");
  const filler = fill(ledgers);
  // No ledger yet for this VM, and no room to make one.
  expect(await kindOfLater(client.ready(VM))).toBe("done");
  expect(kindOf(() => client.appendAll(VM, [decision("exec")]))).toBe("ledger_full");
  // The service's own finds out with the next row.
  client.appendAll("host", [stored("x".repeat(200_000))]);
  expect(await kindOfLater(client.flush("host"))).toBe("ledger_full");
  expect(kindOf(() => client.appendAll("host", [decision("purge", "vm.lifecycle")]))).toBe("ledger_full");
  expect(client.status).toMatchObject({ state: "away", reason: expect.stringContaining("no room") });
  // What frees room goes on, and the log has it; what needs some does not.
  const { boundary, log } = gateTo(client);
  const done = async () => "done";
  for (const draft of [
    lifecycleDraft(FACTS, "stop", "user uid 1"),
    lifecycleDraft(FACTS, "delete", "user uid 1"),
  ])
    expect(await boundary.pass(contextOf(), draft, done)).toBe("done");
  expect(await boundary.pass(contextOf(), fileDraft("export", { vm: FACTS, path: "/a" }), done)).toBe("done");
  expect(log.filter((message) => message === "an act is in no ledger, because none has room")).toHaveLength(
    3,
  );
  expect(await kindOfLater(boundary.pass(contextOf(), EXEC, done))).toBe("ledger_full");
  expect(await kindOfLater(client.finish(VM))).toBe("done");
  rmSync(filler);
  await expect.poll(() => client.status, { timeout: 15_000 }).toEqual({ state: "ok", reason: null });
  expect(kindOf(() => client.appendAll(VM, [decision("exec")]))).toBe("taken");
  await client.flush(VM);
  expect(client.broken).toEqual([]);
}, 60_000);
