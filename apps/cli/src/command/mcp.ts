import { existsSync } from "node:fs";
import { join, resolve } from "node:path";
import { Failure, isLoopbackHost } from "@capsem/base";
import type { Args } from "../args.ts";
import { usageError } from "../cli-error.ts";
import type { Context, Handler } from "../context.ts";
import { knownPort } from "../gateway-port.ts";
import { tokenFileOf } from "../gateway-state.ts";
import type { Powers } from "../powers.ts";
import { suggest } from "../suggest.ts";
import { CLIENT_NAMES, clientPlace, type McpServerEntry, SCOPES } from "./mcp-clients.ts";
import { changeFile } from "./mcp-file.ts";

/** Writes the server into a client's own configuration; the token stays in its file. */
export const install: Handler = async (context, args) => {
  const { output, json, powers } = context;
  const entry = entryOf(powers, args);
  const client = args.words[0];
  if (args.flag("print")) {
    await print(context, client, entry);
    return 0;
  }
  const { place, name, scope } = placeOf(context, args, "configure");
  const changed = await changeFile(place, (text) => place.format.set(text, place.keys, entry));
  if (json) await output.json({ client: name, scope, path: place.path, changed, server: entry });
  else await output.line(`${changed ? "configured" : "already configured"}: capsem in ${place.path}`);
  await warn(context, args, scope);
  return 0;
};

export const uninstall: Handler = async (context, args) => {
  const { output, json } = context;
  const { place, name, scope } = placeOf(context, args, "take capsem out of");
  const changed = await changeFile(place, (text) => place.format.remove(text, place.keys));
  if (json) await output.json({ client: name, scope, path: place.path, changed });
  else await output.line(`${changed ? "removed" : "not there"}: capsem in ${place.path}`);
  return 0;
};

async function print({ output, json, powers }: Context, client: string | undefined, entry: McpServerEntry) {
  if (client === undefined || json) {
    const snippet = { mcpServers: { capsem: entry } };
    await (json ? output.json(snippet) : output.line(JSON.stringify(snippet, null, 2)));
    return;
  }
  const place = clientPlace(powers.env, nameOf(client, "configure"), "user");
  await output.print(place.format.set(null, place.keys, entry));
}

function placeOf({ powers }: Context, args: Args, doing: string) {
  const client = args.words[0];
  if (client === undefined)
    throw usageError(
      `Cannot use mcp install: name a client, ${CLIENT_NAMES.join(", ")}; --print serves any other`,
    );
  const scope = args.choice("scope", SCOPES) ?? "user";
  const name = nameOf(client, doing);
  return { name, scope, place: clientPlace(powers.env, name, scope) };
}

function nameOf(word: string, doing: string) {
  const name = CLIENT_NAMES.find((each) => each === word);
  if (name !== undefined) return name;
  const near = suggest(word, CLIENT_NAMES);
  const hint = near === null ? "" : `, did you mean ${near}?`;
  const more = doing === "configure" ? "; --print serves any other" : "";
  throw usageError(
    `Cannot ${doing} ${JSON.stringify(word)}: the known clients are ${CLIENT_NAMES.join(", ")}${more}${hint}`,
  );
}

/** Absolute paths: a client starts it from anywhere, with a PATH of its own. */
function entryOf(powers: Powers, args: Args): McpServerEntry {
  const program = join(powers.programFolder, "mcp.cjs");
  if (!existsSync(program))
    throw new Failure("file_failed", `Cannot configure a client: ${JSON.stringify(program)} does not exist`);
  const words = ["--gateway-url", gatewayUrl(powers, args), "--token-file", tokenFile(powers, args)];
  return { command: process.execPath, args: [program, ...words] };
}

function tokenFile(powers: Powers, args: Args): string {
  const given = args.text("token-file");
  return given === undefined ? tokenFileOf(powers.home) : resolve(given);
}

function gatewayUrl(powers: Powers, args: Args): string {
  const given = args.text("gateway-url");
  if (given === undefined) return `http://127.0.0.1:${knownPort(powers)}`;
  const url = URL.canParse(given) ? new URL(given) : null;
  const isGood = url !== null && /^https?:$/.test(url.protocol) && url.username === "" && url.password === "";
  if (!isGood)
    throw usageError("Cannot use --gateway-url: an http or https address without a password is needed");
  if (url.protocol === "https:") return given;
  // What is written here gets the token with every call.
  if (!isLoopbackHost(url.hostname))
    throw usageError("Cannot use --gateway-url: http is for this machine alone, use https");
  // The gateway listens on IPv4 alone; the same port of the name's other address may be another user's.
  return given.replace(/^(http:\/\/)localhost(?=[:/]|$)/i, "$1127.0.0.1");
}

async function warn({ output, powers }: Context, args: Args, scope: string): Promise<void> {
  const file = tokenFile(powers, args);
  if (!existsSync(file)) {
    const isOurs = file === tokenFileOf(powers.home);
    await output.say(
      isOurs
        ? "the gateway has no token yet: capsem gateway start makes it"
        : `the token file ${JSON.stringify(file)} is not there`,
    );
  }
  if (scope === "project")
    await output.say("the file names paths of this machine: it is of no use to others");
}
