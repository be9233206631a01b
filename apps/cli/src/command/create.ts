import { NAME_PATTERN } from "@capsem/base";
import { usageError } from "../cli-error.ts";
import { envOf } from "../command-words.ts";
import type { Handler } from "../context.ts";
import { sizeOf, withSizeLimits } from "../vm-size.ts";
import { whileStarting } from "../vm-start.ts";

export const create: Handler = async (context, args) => {
  const { client, output, powers, json } = context;
  const name = args.text("name");
  if (name !== undefined) checkName(name);
  const env = envOf(args, powers.env);
  const size = sizeOf(args);
  const request = {
    ...(name === undefined ? {} : { name }),
    ...(env === undefined ? {} : { env }),
    ...size,
  };
  const service = await client();
  const creating = whileStarting(context, service, service.vms.create(request));
  const info = await withSizeLimits(service, size, creating);
  await (json ? output.json(info) : output.line(info.id));
  return 0;
};

export function checkName(name: string): void {
  if (NAME_PATTERN.test(name)) return;
  throw usageError(
    `Cannot use name ${JSON.stringify(name)}: a lower-case letter, then up to 62 of a-z, 0-9 and -`,
  );
}
