import { utf8Text } from "./utf8-text.ts";
import type { ProxyFact } from "./worker-contract.ts";

/** Facts on their way from a proxy to the service, which are too many and too wide for a message of members. */
export interface FactsMessage {
  /** A JSON list in UTF-8. In it the text of a body is its place in `bodies`. */
  readonly facts: Uint8Array;
  /** Whole payloads in UTF-8: as JSON they could be twice as long, and longer than a message may be. */
  readonly bodies: readonly Uint8Array[];
}

type CallFact = Extract<ProxyFact, { kind: "call" }>;

/** As a proxy has it before it leaves: the text of a body may be in UTF-8 already. */
interface BodyToSend {
  readonly text: string | Uint8Array;
  readonly bytes: number;
}
export type FactToSend =
  | Exclude<ProxyFact, CallFact>
  | (Omit<CallFact, "bodies"> & {
      readonly bodies?: { readonly request?: BodyToSend; readonly response?: BodyToSend };
    });

export function encodeFacts(facts: readonly FactToSend[]): FactsMessage {
  const bodies: Uint8Array[] = [];
  const apart = ({ text, bytes }: BodyToSend) => ({
    text: bodies.push(typeof text === "string" ? Buffer.from(text) : text) - 1,
    bytes,
  });
  const list = facts.map((fact) => {
    if (fact.kind !== "call" || fact.bodies === undefined) return fact;
    const { request, response } = fact.bodies;
    return {
      ...fact,
      bodies: {
        ...(request === undefined ? {} : { request: apart(request) }),
        ...(response === undefined ? {} : { response: apart(response) }),
      },
    };
  });
  return { facts: Buffer.from(JSON.stringify(list)), bodies };
}

/** Nothing in it is checked. Throws SyntaxError for what is no JSON; null: it is no list. */
export function decodeFacts({ facts, bodies }: FactsMessage): unknown[] | null {
  const list: unknown = JSON.parse(utf8Text(facts));
  if (!Array.isArray(list)) return null;
  if (bodies.length === 0) return list;
  for (const fact of list as unknown[]) {
    for (const name of ["request", "response"]) {
      const body = memberOf(memberOf(fact, "bodies"), name);
      const place = memberOf(body, "text");
      const bytes = typeof place === "number" ? bodies[place] : undefined;
      if (bytes !== undefined) (body as { text: unknown }).text = utf8Text(bytes);
    }
  }
  return list;
}

function memberOf(value: unknown, name: string): unknown {
  if (typeof value !== "object" || value === null || !Object.hasOwn(value, name)) return undefined;
  return (value as Readonly<Record<string, unknown>>)[name];
}
