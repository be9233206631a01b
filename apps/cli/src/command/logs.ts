import type { Handler } from "../context.ts";
import { printable } from "../render.ts";
import { findVm } from "../vm-name.ts";

export const logs: Handler = async ({ client, output, json }, args) => {
  const source = args.choice("source", ["console", "guest", "owner"]);
  const tail = args.number("tail", 1, 1_000_000, 1);
  const grep = args.text("grep");
  const vm = await findVm(await client(), args.word(0));
  const result = await vm.logs({
    ...(source === undefined ? {} : { source }),
    ...(tail === undefined ? {} : { tail }),
    ...(grep === undefined ? {} : { grep }),
  });
  if (json) await output.json(result);
  else {
    await output.print(result.lines.map((line) => `${printable(line)}\n`).join(""));
    if (result.truncated) await output.say("there is more: --tail and --grep choose");
  }
  return 0;
};
