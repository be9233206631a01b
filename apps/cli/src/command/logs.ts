import type { Vm } from "@capsem/sdk";
import type { Handler } from "../context.ts";
import { printable } from "../render.ts";
import { findVm } from "../vm-name.ts";

const SOURCES = ["console", "guest", "owner"] as const;
type Source = (typeof SOURCES)[number];

interface Log {
  readonly source: Source;
  readonly lines: readonly string[];
  readonly truncated: boolean;
}

/** Without a source: all that have lines, each under its name. */
export const logs: Handler = async (context, args) => {
  const { output, json } = context;
  const source = args.choice("source", SOURCES);
  const tail = args.number("tail", 1, 1_000_000, 1);
  const grep = args.text("grep");
  const vm = await findVm(context, args.word(0));
  const asked = { ...(tail === undefined ? {} : { tail }), ...(grep === undefined ? {} : { grep }) };
  const all: Log[] = [];
  for (const each of source === undefined ? SOURCES : [source]) all.push(await read(vm, each, asked));
  const found = all.filter((log) => log.lines.length > 0);
  const truncated = all.some((log) => log.truncated);
  if (json) {
    await output.json({ lines: found.flatMap((log) => log.lines), truncated });
    return 0;
  }
  const texts = found.map((log) => log.lines.map((line) => `${printable(line)}\n`).join(""));
  const titled = found.length < 2 ? texts : texts.map((text, at) => `==> ${found[at]?.source} <==\n${text}`);
  await output.print(titled.join("\n"));
  if (found.length === 0) await output.say(whyEmpty(source, grep));
  else if (truncated && tail === undefined) await output.say("there is more: --tail and --grep choose");
  return 0;
};

async function read(vm: Vm, source: Source, asked: { tail?: number; grep?: string }): Promise<Log> {
  const { lines, truncated } = await vm.logs({ source, ...asked });
  return { source, lines, truncated };
}

function whyEmpty(source: Source | undefined, grep: string | undefined): string {
  if (grep !== undefined)
    return `no line of ${source ?? "console, guest or owner"} has ${JSON.stringify(grep)}`;
  if (source === undefined) return "console, guest and owner are empty";
  const others = SOURCES.filter((each) => each !== source).map((each) => `--source ${each}`);
  return `${source} is empty; try ${others.join(" or ")}`;
}
