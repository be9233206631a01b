import { NAME_PATTERN } from "@capsem/base";
import { usageError } from "../cli-error.ts";
import { envOf, sizeOf } from "../command-words.ts";
import type { Handler } from "../context.ts";

export const create: Handler = async ({ client, output, powers, json }, args) => {
  const name = args.text("name");
  if (name !== undefined) checkName(name);
  const env = envOf(args, powers.env);
  const request = {
    ...(name === undefined ? {} : { name }),
    ...(env === undefined ? {} : { env }),
    ...sizeOf(args),
  };
  const info = await (await client()).vms.create(request);
  await (json ? output.json(info) : output.line(info.id));
  return 0;
};

export function checkName(name: string): void {
  if (NAME_PATTERN.test(name)) return;
  throw usageError(
    `Cannot use name ${JSON.stringify(name)}: a lower-case letter, then up to 62 of a-z, 0-9 and -`,
  );
}
