import { CapsemError } from "@capsem/sdk";
import { usageError } from "../cli-error.ts";
import type { Handler } from "../context.ts";
import { renderLocal, renderTable } from "../render.ts";
import { readSecret } from "../secret-input.ts";
import { suggest } from "../suggest.ts";

const NAME = /^[a-z][a-z0-9_-]{0,62}$/;
const REF = /^credential:blake3:[0-9a-f]{64}$/;

export const inject: Handler = async (context, args) => {
  const [name = "", ...more] = args.words;
  if (more.length > 0) throw usageError(ON_THE_COMMAND_LINE);
  if (!NAME.test(name))
    throw usageError("Cannot name the credential: a lower-case letter, then up to 62 of a-z, 0-9, _ and -");
  const keep = args.choice("keep", ["memory", "file"]);
  const hosts = [...args.all("host")];
  if (hosts.length === 0 || hosts.some((host) => host === ""))
    throw usageError(
      "Cannot use credentials inject: --host HOST is needed, once for each host that may see the secret",
    );
  const secret = await readSecret(context);
  const given = { name, secret, hosts, ...(keep === undefined ? {} : { keep }) };
  const info = await (await context.client()).credentials.inject(given);
  await (context.json ? context.output.json(info) : context.output.line(info.ref));
  return 0;
};

/** Why a secret is no word of the command. What was given is not said again. */
export const ON_THE_COMMAND_LINE =
  "Cannot take a secret from the command line: others on this machine can read it there, and the shell keeps it; pipe it in, or type it when asked";

export const list: Handler = async ({ client, output, powers, json }, args) => {
  const credentials = await (await client()).credentials.list();
  if (json) await output.json({ credentials });
  else if (args.flag("names")) await output.print(credentials.map(({ name }) => `${name}\n`).join(""));
  else if (credentials.length === 0) await output.say("no credential is registered");
  else {
    const rows = credentials.map((each) => [
      each.name,
      each.hosts.join(" "),
      each.keep,
      renderLocal(each.created_at),
      each.ref,
    ]);
    const head = ["NAME", "HOSTS", "KEPT IN", "SINCE", "REFERENCE"];
    await output.print(renderTable(head, rows, powers.stdout.size()?.cols));
  }
  return 0;
};

export const remove: Handler = async ({ client, output, json }, args) => {
  const word = args.word(0);
  const service = await client();
  const ref = REF.test(word) ? word : await refOfCredential(service, word);
  const { servers } = await service.credentials.delete(ref);
  await (json ? output.json({ ok: true, ref, servers }) : output.line(`${word} is forgotten`));
  for (const name of json ? [] : servers)
    await output.say(`tool server ${name} sends it, and cannot be reached without: capsem mcp servers`);
  return 0;
};

/** The reference of a registered name. */
export async function refOfCredential(
  client: Awaited<ReturnType<Parameters<Handler>[0]["client"]>>,
  name: string,
): Promise<string> {
  const credentials = await client.credentials.list();
  const found = credentials.find((each) => each.name === name);
  if (found !== undefined) return found.ref;
  const near = suggest(
    name,
    credentials.map((each) => each.name),
  );
  const hint = near === null ? "see capsem credentials list" : `did you mean ${JSON.stringify(near)}?`;
  throw new CapsemError("credential_not_found", `Cannot find credential ${JSON.stringify(name)}: ${hint}`, {
    status: 404,
  });
}
