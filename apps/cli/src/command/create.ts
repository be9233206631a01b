import { NAME_PATTERN, within } from "@capsem/base";
import { CapsemError } from "@capsem/sdk";
import { usageError } from "../cli-error.ts";
import { envOf } from "../command-words.ts";
import type { Context, Handler } from "../context.ts";
import { cleanedUp } from "../interrupts.ts";
import { TIMER_MS_MAX } from "../limits.ts";
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
  const told = new AbortController();
  return await cleanedUp(powers, told, async () => {
    const creating = whileStarting(context, service, service.vms.create(request));
    const info = await untilTold(context, withSizeLimits(service, size, creating), told.signal, name);
    await (json ? output.json(info) : output.line(info.id));
    return 0;
  });
};

/** The service goes on with what was asked of it; a call that a person holds up ends with who asked. */
async function untilTold<T>(
  { output, isHeld }: Context,
  creating: Promise<T>,
  told: AbortSignal,
  name: string | undefined,
): Promise<T> {
  try {
    const never = () => new CapsemError("timeout", "Cannot wait any longer");
    return await within(creating, TIMER_MS_MAX, never, told);
  } catch (thrown) {
    const remove = name === undefined ? "capsem list, capsem delete VM" : `capsem delete ${name}`;
    if (told.aborted && !isHeld())
      await output.say(`the service makes the VM all the same; where it is not wanted: ${remove}`);
    throw thrown;
  }
}

export function checkName(name: string): void {
  if (NAME_PATTERN.test(name)) return;
  throw usageError(
    `Cannot use name ${JSON.stringify(name)}: a lower-case letter, then up to 62 of a-z, 0-9 and -`,
  );
}
