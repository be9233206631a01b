import { createHash } from "node:crypto";
import type { ContractParams, ContractResult, PROXY_SERVICE_METHODS, TOOL_SERVER_METHODS } from "@capsem/api";
import { messageOf } from "@capsem/base";
import {
  canonicalDefinition,
  type Era,
  joinUri,
  listedNames,
  membersOf,
  withMember,
} from "@capsem/mcp-protocol";
import { PROXY_LIMITS } from "../limits.ts";

export type CatalogAnswer = ContractResult<typeof TOOL_SERVER_METHODS, "server.catalog">;
export type PinsReport = ContractParams<typeof PROXY_SERVICE_METHODS, "pins.report">;

/** Tools, prompts, resources and templates: what can be listed, and found by its own name at its server. */
export const ITEM_KINDS = ["tools", "resources", "templates", "prompts"] as const;
export type ItemKind = (typeof ITEM_KINDS)[number];

export interface Item {
  /** A name, a URI or a URI template, as its server spells it. */
  readonly key: string;
  /** The same as clients see it. */
  readonly listedAs: string;
  /** As the server wrote it. */
  readonly text: string;
}

export interface ToolItem extends Item {
  /** Of its canonical definition. */
  readonly hash: string;
  /** What it answers comes from outside: it says nothing else, or says so. */
  readonly isOpenWorld: boolean;
  /** Less than the usual time, where it asks for less. */
  readonly timeoutMs: number | undefined;
}

/** What a server offers, as it last said. Never changes; another look makes another one. */
export interface Catalog {
  readonly server: string;
  readonly era: Era;
  readonly info: PinsReport["info"];
  readonly tools: ReadonlyMap<string, ToolItem>;
  readonly resources: ReadonlyMap<string, Item>;
  readonly templates: ReadonlyMap<string, Item>;
  readonly prompts: ReadonlyMap<string, Item>;
  /** By the name or URI that clients see. */
  readonly listed: Readonly<Record<ItemKind, ReadonlyMap<string, Item>>>;
  readonly reports: PinsReport["tools"];
  /** What was left out, and why. */
  readonly faults: readonly string[];
}

/** One bad item is left out, and named; the others stay. */
export function readCatalog(server: string, answer: CatalogAnswer): Catalog {
  const faults: string[] = [];
  const tools = new Map<string, ToolItem>();
  const reports: PinsReport["tools"] = [];
  const named = namesOf(server, answer.tools, faults);
  for (const [key, { text, members, listedAs }] of named) {
    try {
      const canonical = canonicalDefinition(text, answer.instructions);
      const hash = createHash("sha256").update(canonical).digest("hex");
      const title = stringOf(members.get("title"));
      const description = stringOf(members.get("description"));
      reports.push({ name: key, title, description, definition: text, canonical, hash });
      tools.set(key, { key, listedAs, text, hash, ...hintsOf(members) });
    } catch (thrown) {
      faults.push(`tool ${JSON.stringify(key)}: ${messageOf(thrown)}`);
    }
  }
  const resources = urisOf(server, answer.resources, "uri", faults);
  const templates = urisOf(server, answer.templates, "uriTemplate", faults);
  const prompts = new Map(
    [...namesOf(server, answer.prompts, faults)].map(([key, { text, listedAs }]) => [
      key,
      { key, text, listedAs },
    ]),
  );
  return {
    ...{ server, era: answer.era, tools, resources, templates, prompts, reports, faults },
    info: {
      name: answer.name,
      version: answer.version,
      protocol: answer.protocol,
      resources: resources.size + templates.size,
      prompts: prompts.size,
    },
    listed: {
      tools: byListed(tools),
      resources: byListed(resources),
      templates: byListed(templates),
      prompts: byListed(prompts),
    },
  };
}

/** The item of a list, under the name that clients see. */
export function listedText(kind: ItemKind, item: Item, text: string): string {
  return withMember(text, MEMBER[kind], JSON.stringify(item.listedAs));
}

const MEMBER = { tools: "name", prompts: "name", resources: "uri", templates: "uriTemplate" } as const;

interface NamedItem {
  readonly server: string;
  readonly name: string;
  readonly text: string;
  readonly members: ReadonlyMap<string, string>;
}

function namesOf(server: string, texts: readonly string[], faults: string[]) {
  const all: NamedItem[] = [];
  for (const text of texts) {
    const members = membersIn(text, "name", faults);
    if (members === undefined) continue;
    const name = stringOf(members.get("name"));
    if (name === null || name === "" || name.length > PROXY_LIMITS.nameCharsMax) {
      faults.push("an item without a usable name");
    } else all.push({ server, name, text, members });
  }
  const items = new Map<string, { text: string; listedAs: string; members: ReadonlyMap<string, string> }>();
  for (const [listedAs, { name, text, members }] of listedNames(all))
    items.set(name, { text, listedAs, members });
  return items;
}

function urisOf(
  server: string,
  texts: readonly string[],
  member: string,
  faults: string[],
): Map<string, Item> {
  const items = new Map<string, Item>();
  for (const text of texts) {
    const members = membersIn(text, member, faults);
    const key = stringOf(members?.get(member));
    if (key === null || key === "" || key.length > PROXY_LIMITS.ruleTextCharsMax) {
      if (members !== undefined) faults.push(`an item without a usable ${member}`);
    } else if (!items.has(key)) items.set(key, { key, text, listedAs: joinUri(server, key) });
  }
  return items;
}

function membersIn(text: string, member: string, faults: string[]): ReadonlyMap<string, string> | undefined {
  if (text.length > PROXY_LIMITS.definitionBytesMax) {
    faults.push(`an item of ${text.length} characters`);
    return undefined;
  }
  try {
    const members = membersOf(text);
    if (members.has(member)) return members;
    faults.push(`an item without ${member}`);
  } catch (thrown) {
    faults.push(messageOf(thrown));
  }
  return undefined;
}

/** Of a text that was scanned: null where it is no string. */
function stringOf(text: string | undefined): string | null {
  return text?.startsWith('"') === true ? (JSON.parse(text) as string) : null;
}

/** A server's own word of a tool: one that is taken only where it makes the tool's limits narrower. */
const TIMEOUT_KEY = "dev.capsem/timeout_ms";

function hintsOf(members: ReadonlyMap<string, string>) {
  const annotations = memberIn(members.get("annotations"), "openWorldHint");
  const timeout = Number(memberIn(members.get("_meta"), TIMEOUT_KEY));
  return {
    isOpenWorld: annotations !== "false",
    timeoutMs: Number.isInteger(timeout) && timeout > 0 ? timeout : undefined,
  };
}

function memberIn(text: string | undefined, name: string): string | undefined {
  return text?.startsWith("{") === true ? membersOf(text).get(name) : undefined;
}

function byListed<T extends Item>(items: ReadonlyMap<string, T>): ReadonlyMap<string, T> {
  return new Map([...items.values()].map((item) => [item.listedAs, item]));
}
