import type { FileInfo } from "@capsem/api";
import type { Vm } from "@capsem/sdk";
import type { Args } from "../args.ts";
import type { Context, Handler } from "../context.ts";
import { printable, renderMode, renderTable } from "../render.ts";
import { findVm } from "../vm-name.ts";

/** One control message of the guest holds no more. */
const PAGE = 256;

export const list: Handler = async (context, args) => {
  const vm = await vmOf(context, args);
  const depth = args.number("depth", 1, 64, 1);
  const path = args.words[1];
  const entries: FileInfo[] = [];
  for (;;) {
    const where = { offset: entries.length, limit: PAGE, ...(depth === undefined ? {} : { depth }) };
    const page = await vm.files.list(path, where);
    if (!context.json) await context.output.print(page.entries.map(lineOf).join(""));
    entries.push(...page.entries);
    if (!page.more || page.entries.length === 0) break;
  }
  if (context.json) await context.output.json({ entries, total: entries.length, more: false });
  return 0;
};

export const stat: Handler = async (context, args) => {
  const info = await (await vmOf(context, args)).files.stat(args.word(1));
  if (context.json) await context.output.json(info);
  else
    await context.output.print(
      renderTable(["MODE", "UID", "GID", "SIZE", "MODIFIED", "NAME"], [cellsOf(info)]),
    );
  return 0;
};

export const mkdir: Handler = (context, args) =>
  change(context, args, (vm) => vm.files.mkdir(args.word(1), { parents: args.flag("parents") }));

export const rename: Handler = (context, args) =>
  change(context, args, (vm) => vm.files.rename(args.word(1), args.word(2)));

export const remove: Handler = (context, args) =>
  change(context, args, (vm) => vm.files.remove(args.word(1), { recursive: args.flag("recursive") }));

async function change(context: Context, args: Args, act: (vm: Vm) => Promise<void>): Promise<number> {
  await act(await vmOf(context, args));
  if (context.json) await context.output.json({ ok: true });
  return 0;
}

async function vmOf(context: Context, args: Args): Promise<Vm> {
  return await findVm(context, args.word(0));
}

function lineOf(info: FileInfo): string {
  const [mode = "", , , size = "", time = "", name = ""] = cellsOf(info);
  return `${mode}  ${size.padStart(11)}  ${time}  ${name}\n`;
}

function cellsOf(info: FileInfo): string[] {
  const target = info.target === undefined ? "" : ` -> ${printable(info.target)}`;
  const time = new Date(info.mtime_ms).toISOString().replace(/\.\d+Z$/, "Z");
  const mode = renderMode(info.type, info.mode);
  return [mode, String(info.uid), String(info.gid), String(info.size), time, printable(info.name) + target];
}
