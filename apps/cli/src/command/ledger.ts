import type { LedgerInfo, VerifyResult } from "@capsem/api";
import { usageError } from "../cli-error.ts";
import type { Context, Handler } from "../context.ts";
import { exportTo } from "../ledger-export.ts";
import { findLedger } from "../ledger-name.ts";
import { paintOf } from "../paint.ts";
import { counted, printable, renderBytes, renderLocal, renderTable } from "../render.ts";

export const list: Handler = async ({ client, output, powers, json }, args) => {
  const ledgers = await (await client()).ledgers.list();
  if (json) await output.json({ ledgers });
  else if (args.flag("names")) {
    const names = new Set(ledgers.map(({ name, vm_id: id }) => name ?? id));
    await output.print([...names].map((name) => `${name}\n`).join(""));
  } else {
    const head = ["VM", "NAME", "IS", "ROWS", "SIZE", "FIRST", "LAST"];
    const rows = ledgers.map(rowOf);
    await output.print(renderTable(head, rows, powers.stdout.size()?.cols, paintOf(powers)));
  }
  return 0;
};

function rowOf(each: LedgerInfo): string[] {
  const is = each.vm_id === "host" ? "this machine" : each.has_vm ? "there" : "gone";
  return [
    each.vm_id,
    each.name ?? "-",
    each.archived === 0 ? is : `${is}, ${each.archived} set aside`,
    String(each.rows),
    renderBytes(each.bytes),
    renderLocal(each.first_time),
    renderLocal(each.last_time),
  ];
}

interface Verified extends VerifyResult {
  readonly name: string | null;
  /** It has a VM that needs it to start. */
  readonly has_vm: boolean;
  /** What it is called now, where it was set aside. */
  readonly archived?: string;
}

/** Exit code 1 where one is broken and was not set aside. */
export const verify: Handler = async (context, args) => {
  const client = await context.client();
  const word = args.words[0];
  if ((word === undefined) === !args.flag("all"))
    throw usageError("Cannot use ledger verify: give one VM, or --all");
  const all = await client.ledgers.list();
  const targets: Target[] =
    word === undefined
      ? all.map(({ vm_id: id, name }) => ({ id, name }))
      : [{ id: await findLedger(context, word), name: word }];
  const results: Verified[] = [];
  for (const { id, name } of targets) {
    const found = all.find(({ vm_id: each }) => each === id);
    const result = { ...(await client.ledgers.verify(id)), name, has_vm: found?.has_vm ?? false };
    const verified =
      result.is_whole || !args.flag("archive")
        ? result
        : { ...result, archived: (await client.ledgers.archive(id)).name };
    results.push(verified);
    if (!context.json) await tell(context, verified);
  }
  const broken = results.filter((each) => !each.is_whole && each.archived === undefined);
  if (context.json) await context.output.json({ ok: broken.length === 0, ledgers: results });
  return broken.length === 0 ? 0 : 1;
};

interface Target {
  readonly id: string;
  readonly name: string | null;
}

async function tell({ output, powers }: Context, result: Verified): Promise<void> {
  const who =
    result.name === null || result.name === result.vm_id ? result.vm_id : `${result.name} (${result.vm_id})`;
  const paint = paintOf(powers);
  const { fault } = result;
  if (result.is_whole || fault === null) {
    const unsigned = result.rows - result.signed_rows;
    const signed = unsigned === 0 ? "all signed" : `${result.signed_rows} signed`;
    await output.print(
      `${paint("whole ", "green")}  ${printable(who)}: ${counted(result.rows, "row")}, ${signed}\n`,
    );
    return;
  }
  const where = [fault.table, fault.event_id === null ? null : `event ${fault.event_id}`].filter(
    (each) => each !== null,
  );
  const place = where.length === 0 ? "" : ` (${where.join(", ")})`;
  await output.print(
    `${paint("BROKEN", "red")}  ${printable(who)}: row ${fault.row}${place} is ${fault.kind}: ${printable(fault.message)}\n`,
  );
  if (result.archived !== undefined)
    await output.line(
      `        set aside as ${result.archived}${result.has_vm ? "; its VM starts with a new one" : ""}`,
    );
  else if (result.has_vm && result.vm_id !== "host")
    await output.say("its VM does not start; --archive sets the ledger aside, so that it does");
}

export const exportLedger: Handler = async (context, args) => {
  const id = await findLedger(context, args.word(0));
  const ledger = (await context.client()).ledgers.export(id);
  const path = args.text("output");
  if (path === undefined && context.json)
    throw usageError("Cannot use --json without --output: an export is JSON lines already");
  return await exportTo(context, ledger, path);
};
