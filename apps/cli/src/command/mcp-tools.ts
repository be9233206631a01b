import { byArguments } from "../by-arguments.ts";
import { usageError } from "../cli-error.ts";
import type { Handler } from "../context.ts";
import { isWaiting, toolTable, waitingText } from "../mcp-text.ts";
import { suggest } from "../suggest.ts";
import { usualText } from "./mcp-servers.ts";

export const list: Handler = async ({ client, output, powers, json }, args) => {
  const name = args.word(0);
  const service = await client();
  const tools = await service.mcp.tools(name);
  if (json) await output.json({ server_id: name, tools });
  else if (args.flag("names")) await output.print(tools.map((tool) => `${tool.name}\n`).join(""));
  else if (tools.length === 0)
    await output.say(`no tool of ${name} has been seen; look at it: capsem mcp refresh ${name}`);
  else {
    await output.print(toolTable(tools, powers));
    const waiting = tools.filter(isWaiting).length;
    if (waiting > 0) await output.say(waitingText(name, waiting));
    const more = byArguments(tools);
    if (more !== null) await output.say(more);
  }
  return 0;
};

export const usual: Handler = async ({ client, output, json }, args) => {
  const word = args.words[0];
  const permission = word === undefined ? undefined : permissionOf(word);
  const { mcp } = await client();
  const found = await (permission === undefined ? mcp.default() : mcp.setDefault(permission));
  if (json) await output.json(found);
  else {
    const rule = found.rule_id === null ? "" : ` (rule ${found.rule_id})`;
    await output.line(`${usualText(found.permission)}${rule}`);
  }
  return 0;
};

export const permit: Handler = async ({ client, output, json }, args) => {
  const permission = permissionOf(args.word(2));
  const tool = await (await client()).mcp.setPermission(args.word(0), args.word(1), permission);
  if (json) await output.json(tool);
  else {
    const said = permission === "default" ? "nothing is said of it" : permission;
    const now = `a call meets ${tool.decision} now (rule ${tool.rule_id})`;
    await output.line(`${tool.server} ${tool.name}: ${said}; ${now}`);
  }
  return 0;
};

/** As the route takes them: its own table would cost the command its loading. */
const PERMISSIONS = ["allow", "ask", "block", "default"] as const;

function permissionOf(word: string): (typeof PERMISSIONS)[number] {
  const found = PERMISSIONS.find((each) => each === word);
  if (found !== undefined) return found;
  const near = suggest(word, PERMISSIONS);
  const hint = near === null ? "" : `, did you mean ${near}?`;
  throw usageError(`Cannot use ${JSON.stringify(word)}: it is one of ${PERMISSIONS.join(", ")}${hint}`);
}
