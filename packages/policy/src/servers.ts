import type { PolicyFault } from "./fault.ts";
import { POLICY_LIMITS } from "./limits.ts";
import { SERVER_TABLE, type ServerDeclaration } from "./server-declaration.ts";

/** A declared server as it holds. */
export interface ServerInForce extends ServerDeclaration {
  readonly source: "user" | "corp";
  /** Nobody but the corporation can change it. */
  readonly isLocked: boolean;
}

type Given = ReadonlyMap<string, ServerDeclaration>;

/** By name, in the order of names. What the corporation declares holds, whatever the user says of the same name. */
export function mergeServers(user: Given, corp: Given): ReadonlyMap<string, ServerInForce> {
  const names = [...new Set([...user.keys(), ...corp.keys()])].sort();
  return new Map(
    names.flatMap((name): [string, ServerInForce][] => {
      const [theirs, own] = [corp.get(name), user.get(name)];
      if (theirs !== undefined) return [[name, Object.freeze({ ...theirs, source: "corp", isLocked: true })]];
      return own === undefined ? [] : [[name, Object.freeze({ ...own, source: "user", isLocked: false })]];
    }),
  );
}

/** What the files say together is too much, although neither does alone. */
export function tooManyServers(user: Given, corp: Given): PolicyFault | undefined {
  const count = new Set([...user.keys(), ...corp.keys()]).size;
  if (count <= POLICY_LIMITS.serversMax) return undefined;
  const more = user.size === count ? "" : ", with those of the corporation";
  const message = `${count} tool servers${more}, limit ${POLICY_LIMITS.serversMax}`;
  return { code: "too_large", message, at: [...user.values()].at(-1)?.at, subject: SERVER_TABLE.join(".") };
}
