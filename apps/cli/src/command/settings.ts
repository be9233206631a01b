import type { SettingInfo } from "@capsem/api";
import { CapsemError } from "@capsem/sdk";
import { usageError } from "../cli-error.ts";
import type { Context, Handler } from "../context.ts";
import { faultLine } from "../error-text.ts";
import { paintOf } from "../paint.ts";
import { renderTable } from "../render.ts";
import { suggest } from "../suggest.ts";

type Value = SettingInfo["value"];

export const list: Handler = async ({ client, output, powers, json }, args) => {
  const found = await (await client()).settings.info();
  if (json) await output.json(found);
  else if (args.flag("names")) await output.print(found.settings.map(({ key }) => `${key}\n`).join(""));
  else {
    const rows = found.settings.map((each) => [
      each.key,
      { text: textOf(each.value), color: each.source === "builtin" ? null : ("bold" as const) },
      each.source === "builtin"
        ? ""
        : `${each.source === "corp" ? "the corporation" : "you"}${each.is_locked ? ", locked" : ""}`,
      each.doc,
    ]);
    const head = ["KEY", "VALUE", "SET BY", "WHAT"];
    await output.print(renderTable(head, rows, powers.stdout.size()?.cols, paintOf(powers)));
    for (const fault of found.faults) await output.say(faultLine(fault, fault.file ?? found.file));
    if (found.faults.length > 0)
      await output.say("what was in force before still is: mend the file, then capsem corp reload");
  }
  return 0;
};

export const get: Handler = async ({ client, output, json }, args) => {
  const key = args.word(0);
  const { settings } = await (await client()).settings.info();
  const found = settings.find((each) => each.key === key);
  if (found === undefined) throw unknownKey(key, settings);
  await (json ? output.json(found) : output.line(textOf(found.value)));
  return 0;
};

export const set: Handler = async (context, args) => {
  const given = args.words.map(keyAndText);
  const client = await context.client();
  const { settings } = await client.settings.info();
  const edits = given.map(({ key, text }) => {
    const known = settings.find((each) => each.key === key);
    if (known === undefined) throw unknownKey(key, settings);
    return { key, value: typedValue(known, text) };
  });
  return await edit(context, edits);
};

export const reset: Handler = (context, args) =>
  edit(
    context,
    args.words.map((key) => ({ key, value: null })),
  );

async function edit(
  { client, output, json }: Context,
  edits: readonly { readonly key: string; readonly value: Value | null }[],
): Promise<number> {
  const found = await (await client()).settings.edit(edits);
  const changed = found.settings.filter(({ key }) => edits.some((each) => each.key === key));
  if (json) {
    await output.json({ digest: found.digest, settings: changed });
    return 0;
  }
  for (const { key, value } of changed) await output.line(`${key}=${textOf(value)}`);
  if (changed.some((each) => each.needs_restart))
    await output.say("this holds from the next start of the service: capsem service stop, then any command");
  return 0;
}

function keyAndText(word: string): { key: string; text: string } {
  const equals = word.indexOf("=");
  if (equals <= 0) throw usageError(`Cannot use ${JSON.stringify(word)}: KEY=VALUE is needed`);
  return { key: word.slice(0, equals), text: word.slice(equals + 1) };
}

/** In the type that the setting has; whether it may have this value, the service says. */
function typedValue({ key, default: usual, takes }: SettingInfo, text: string): Value {
  const refused = () => usageError(`Cannot set ${key} to ${JSON.stringify(text)}: it takes ${takes}`);
  if (typeof usual === "string") return text;
  if (typeof usual === "boolean") {
    if (text !== "true" && text !== "false") throw refused();
    return text === "true";
  }
  if (typeof usual === "number") {
    if (!/^-?[0-9]+(\.[0-9]+)?$/.test(text)) throw refused();
    return Number(text);
  }
  if (!text.startsWith("[")) return text === "" ? [] : text.split(",");
  try {
    return JSON.parse(text) as string[];
  } catch {
    throw refused();
  }
}

function textOf(value: Value): string {
  return Array.isArray(value) ? JSON.stringify(value) : String(value);
}

function unknownKey(key: string, settings: readonly SettingInfo[]): CapsemError {
  const near = suggest(
    key,
    settings.map((each) => each.key),
  );
  const hint = near === null ? "see capsem settings list" : `did you mean ${near}?`;
  return new CapsemError("invalid_input", `Cannot find setting ${JSON.stringify(key)}: ${hint}`);
}
