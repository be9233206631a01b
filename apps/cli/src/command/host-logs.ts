import { HOST_LOG_SOURCES } from "@capsem/api";
import { usageError } from "../cli-error.ts";
import type { Handler } from "../context.ts";
import { printable } from "../render.ts";

export const hostLogs: Handler = async ({ client, output, json }, args) => {
  const word = args.word(0);
  const source = HOST_LOG_SOURCES.find((each) => each === word);
  if (source === undefined) {
    throw usageError(
      `Cannot use source ${JSON.stringify(word)}: it is one of ${HOST_LOG_SOURCES.join(", ")}`,
    );
  }
  const tail = args.number("tail", 1, 10_000, 1);
  const maxBytes = args.number("max-bytes", 1, 1_048_576, 1);
  const grep = args.text("grep");
  const query = {
    ...(tail === undefined ? {} : { tail }),
    ...(maxBytes === undefined ? {} : { max_bytes: maxBytes }),
    ...(grep === undefined ? {} : { grep }),
  };
  const found = await (await client()).operation("hostLogs")({ params: { source }, query });
  if (json) {
    await output.json(found);
    return 0;
  }
  await output.print(found.lines.map((line) => `${printable(line)}\n`).join(""));
  if (found.lines.length === 0) {
    const why =
      grep === undefined ? `${source} has no lines` : `no line of ${source} has ${JSON.stringify(grep)}`;
    await output.say(why);
  } else if (found.truncated && tail === undefined) {
    await output.say("there is more: --tail, --grep and --max-bytes choose");
  }
  return 0;
};
