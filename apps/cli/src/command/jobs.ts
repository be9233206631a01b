import { constants } from "node:os";
import type { JobInfo } from "@capsem/api";
import { JOB_ID_PATTERN } from "@capsem/base";
import type { Args } from "../args.ts";
import { usageError } from "../cli-error.ts";
import type { Handler } from "../context.ts";
import { exitOfJob } from "../exit-code.ts";
import { PLAIN_COLUMNS } from "../limits.ts";
import { OutputCollector } from "../output-collector.ts";
import { printable, renderTable } from "../render.ts";
import { findVm } from "../vm-name.ts";

export const list: Handler = async ({ client, names, output, powers, json }, args) => {
  const jobs = await (await findVm({ client, names }, args.word(0))).jobs();
  if (json) await output.json({ jobs });
  else {
    const columns = powers.stdout.size()?.cols ?? PLAIN_COLUMNS;
    await output.print(renderTable(["ID", "STATE", "EXIT", "STARTED", "COMMAND"], jobs.map(rowOf), columns));
  }
  return 0;
};

export const output: Handler = async ({ client, names, output: out, json }, args) => {
  const id = jobIdOf(args);
  const offset = args.number("offset", 0, Number.MAX_SAFE_INTEGER, 1);
  const vm = await findVm({ client, names }, args.word(0));
  const streams = { stdout: new OutputCollector(), stderr: new OutputCollector() };
  const where = { follow: args.flag("follow"), ...(offset === undefined ? {} : { offset }) };
  for await (const { stream, data } of vm.jobOutput(id, where)) {
    if (json) streams[stream].add(data);
    else if (stream === "stdout") await out.print(data);
    else await out.error(data);
  }
  if (json) await out.json({ job_id: id, stdout: streams.stdout.data, stderr: streams.stderr.data });
  return 0;
};

export const signal: Handler = async ({ client, names, output: out, json }, args) => {
  const number = signalOf(args.word(2));
  const id = jobIdOf(args);
  await (await findVm({ client, names }, args.word(0))).signalJob(id, number);
  if (json) await out.json({ ok: true });
  return 0;
};

function jobIdOf(args: Args): string {
  const id = args.word(1);
  if (!JOB_ID_PATTERN.test(id))
    throw usageError(`Cannot use job ${JSON.stringify(id)}: job_ and 16 characters are needed`);
  return id;
}

function signalOf(word: string): number {
  const number = /^[0-9]{1,2}$/.test(word) ? Number(word) : 0;
  if (number >= 1 && number <= 64) return number;
  const name = word.toUpperCase().replace(/^(SIG)?/, "SIG");
  const found = Object.entries(constants.signals).find(([each]) => each === name);
  if (found === undefined)
    throw usageError(`Cannot use signal ${JSON.stringify(word)}: a name or 1 to 64 is needed`);
  return found[1];
}

function rowOf(job: JobInfo): string[] {
  const exit = job.state === "running" ? "-" : String(exitOfJob(job));
  return [job.id, job.state, exit, job.started_at.replace(/\.\d+Z$/, "Z"), printable(job.command.join(" "))];
}
