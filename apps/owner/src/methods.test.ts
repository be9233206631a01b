import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { defer } from "@capsem/base";
import type { RpcContext } from "@capsem/rpc";
import type { MuxStream } from "@capsem/wire";
import { expect, test } from "vitest";
import { JobSpool } from "./job-spool.ts";
import { type OwnerLife, streamMethods } from "./methods.ts";

/** What a follower of a job's output was told, and whether it waits for more. */
function follower(spool: JobSpool, follow: true | "output") {
  const life = { machine: () => ({ jobs: { get: () => ({ id: "job_1", spool }) } }) };
  const context = { signal: new AbortController().signal } as RpcContext;
  const told = { text: "", isOver: false };
  const write = async (chunk: Uint8Array) => {
    told.text += Buffer.from(chunk.subarray(5)).toString();
  };
  const opened = streamMethods(life as unknown as OwnerLife)["job.read"]?.(
    { job: "job_1", offset: 0, follow },
    context,
  );
  const sent = opened?.then(({ run }) => run({ write } as unknown as MuxStream));
  void sent?.then(() => {
    told.isOver = true;
  });
  return told;
}

const settled = () => new Promise<void>((resolve) => setImmediate(resolve));

test("who follows a job's output alone is done when the guest has ended it, all others when the job is", async () => {
  const folder = mkdtempSync(join(tmpdir(), "capsem-methods-"));
  try {
    const spool = new JobSpool(join(folder, "job_1.ring"));
    const [ofOutput, ofJob] = [follower(spool, "output"), follower(spool, true)];
    await settled();
    spool.append(1, Buffer.from("all"));
    await settled();
    expect([ofOutput, ofJob]).toEqual(Array(2).fill({ text: "all", isOver: false }));
    spool.end();
    await settled();
    expect([ofOutput.isOver, ofJob.isOver]).toEqual([true, false]);
    spool.close();
    await settled();
    expect(ofJob).toEqual({ text: "all", isOver: true });
    // One that comes later has it all.
    const late = follower(spool, "output");
    await settled();
    expect(late).toEqual({ text: "all", isOver: true });
    spool.remove();
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});

test("output of a job that is forgotten while it is read is cut, and does not end as if it were whole", async () => {
  const folder = mkdtempSync(join(tmpdir(), "capsem-methods-"));
  try {
    const spool = new JobSpool(join(folder, "job_1.ring"));
    spool.append(1, Buffer.alloc(200_000));
    spool.close();
    const life = { machine: () => ({ jobs: { get: () => ({ id: "job_1", spool }) } }) };
    const methods = streamMethods(life as unknown as OwnerLife);
    const context = { signal: new AbortController().signal } as RpcContext;
    const opened = await methods["job.read"]?.({ job: "job_1", offset: 0, follow: true }, context);
    const [taken, room] = [defer<void>(), defer<void>()];
    const write = () => {
      taken.resolve();
      return room.promise;
    };
    const sent = opened?.run({ write } as unknown as MuxStream);
    await taken.promise;
    // Its reader is slow, and newer jobs need the room.
    spool.remove();
    room.resolve();
    await expect(sent).rejects.toMatchObject({ kind: "job_not_found" });
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});
