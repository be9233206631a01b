import type { CorpInfo } from "@capsem/api";
import type { Context, Handler } from "../context.ts";
import { faultLine } from "../error-text.ts";
import { POLICY_TEXT_BYTES_MAX } from "../limits.ts";
import { counted, renderPairs } from "../render.ts";
import { readText } from "../text-input.ts";
import { tellFindings } from "./rules.ts";

export const info: Handler = async (context) => show(context, await (await context.client()).corp.info());

/** Exit code 1 where a file has a fault: what was in force before still is. */
export const reload: Handler = async (context) => show(context, await (await context.client()).corp.reload());

export const validate: Handler = async (context, args) => {
  const { client, output, powers, json } = context;
  const file = args.word(0);
  const text = await readText(powers, file, POLICY_TEXT_BYTES_MAX);
  const found = await (await client()).corp.validate(text);
  if (json) await output.json(found);
  else {
    const name = file === "-" ? null : file;
    for (const fault of found.faults) await output.line(faultLine(fault, name ?? fault.file));
    if (found.is_valid) await output.line(`valid: ${counted(found.rules, "rule")}`);
    await tellFindings(context, found.findings);
  }
  return found.is_valid ? 0 : 1;
};

async function show({ output, json }: Context, found: CorpInfo): Promise<number> {
  if (json) await output.json(found);
  else {
    await output.print(
      renderPairs([
        ["file", found.is_present ? found.file : `${found.file} (not there)`],
        ["rules", String(found.rules)],
        ["locked", found.locked.length === 0 ? "-" : found.locked.join(" ")],
        ["digest", found.digest?.slice(0, 12) ?? "-"],
      ]),
    );
    for (const fault of found.faults) await output.say(faultLine(fault, fault.file ?? found.file));
    if (found.faults.length > 0) await output.say("what was in force before still is");
  }
  return found.faults.length === 0 ? 0 : 1;
}
