import { splitName, splitUri } from "@capsem/mcp-protocol";
import { type CallParts, waitFor } from "../call/call-parts.ts";
import type { Caller } from "../call/caller.ts";
import { invalidParams, objectParam, type Params, textParam } from "../call/params.ts";
import { notFound, type PlainTarget } from "../call/plain-call.ts";

/** What names of clients stand for. Names are ours, all else of a thing is its server's. */
export class Targets {
  readonly #parts: CallParts;
  constructor(parts: CallParts) {
    this.#parts = parts;
  }

  /** Of `resources/read`, `subscribe` and `unsubscribe`. Throws Failure("not_found"). */
  async resource(caller: Caller, params: Params): Promise<PlainTarget> {
    const given = textParam(params, "uri");
    return this.#resource(caller, given, "resources", (uri) => ({ uri }));
  }

  async prompt(caller: Caller, params: Params): Promise<PlainTarget> {
    const given = textParam(params, "name");
    const args = objectParam(params, "arguments") ?? {};
    return { ...(await this.#prompt(caller, given, (name) => ({ name }))), arguments: args };
  }

  /** Of `completion/complete`: the prompt or the template that is completed. */
  async completion(caller: Caller, params: Params): Promise<PlainTarget> {
    const ref = objectParam(params, "ref");
    const argument = objectParam(params, "argument");
    if (ref === undefined || argument === undefined) throw invalidParams('"ref" and "argument" are needed');
    const args = { [textParam(argument, "name")]: argument.value ?? "" };
    switch (ref.type) {
      case "ref/prompt": {
        const target = await this.#prompt(caller, textParam(ref, "name"), (name) => ({
          ref: { ...ref, name },
        }));
        return { ...target, arguments: args };
      }
      case "ref/resource": {
        const own = (uri: string) => ({ ref: { ...ref, uri } });
        return {
          ...(await this.#resource(caller, textParam(ref, "uri"), "templates", own)),
          arguments: args,
        };
      }
      default:
        throw invalidParams('"ref" has an unknown type');
    }
  }

  async #resource(
    caller: Caller,
    given: string,
    kind: "resources" | "templates",
    own: (uri: string) => Params,
  ): Promise<PlainTarget> {
    const split = splitUri(given) ?? this.#byOriginal(given, kind);
    const server = split === undefined ? undefined : this.#parts.book.get(split.server);
    if (split === undefined) throw notFound("resource", given);
    if (server === undefined) throw this.#parts.book.missing(split.server, "resource", given);
    const catalog = await waitFor(this.#parts.catalogs.get(server.name), caller, this.#parts);
    return { server, catalog, kind, key: split.uri, own: own(split.uri) };
  }

  /** An original URI means its server, while there is only one. */
  #byOriginal(uri: string, kind: "resources" | "templates"): { server: string; uri: string } | undefined {
    const owners = new Set<string>();
    for (const name of this.#parts.book.names) {
      if (this.#parts.catalogs.peek(name)?.[kind].has(uri) === true) owners.add(name);
    }
    const linked = this.#parts.links.ownerOf(uri);
    if (linked === null) return undefined;
    if (linked !== undefined) owners.add(linked);
    const [server, ...others] = owners;
    return server === undefined || others.length > 0 ? undefined : { server, uri };
  }

  async #prompt(caller: Caller, given: string, own: (name: string) => Params): Promise<PlainTarget> {
    const split = splitName(given);
    const server = split === null ? undefined : this.#parts.book.get(split.server);
    if (split === null) throw notFound("prompt", given);
    if (server === undefined) throw this.#parts.book.missing(split.server, "prompt", given);
    const catalog = await waitFor(this.#parts.catalogs.get(server.name), caller, this.#parts);
    const item = catalog.listed.prompts.get(given) ?? catalog.prompts.get(split.name);
    if (item === undefined) throw notFound("prompt", given);
    return { server, catalog, kind: "prompts", key: item.key, own: own(item.key) };
  }
}
