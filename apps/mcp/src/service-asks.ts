import type { AskInfo } from "@capsem/api";
import { CapsemError } from "@capsem/sdk";
import { noteOf, type Resolution } from "./ask-form.ts";
import type { Caller, CallParts } from "./attempt.ts";

/** Asks as the service has them. People resolve them: no tool leads here, only a form that a person has answered. */
export interface ServiceAsks {
  /** Null also where the service does not say: nobody is to decide on what cannot be shown. */
  find(id: string, state: AskInfo["state"]): Promise<AskInfo | null>;
  resolve(id: string, choice: Resolution): Promise<void>;
}

export function serviceAsks({ calls, timeoutMs }: CallParts, { clientName, cancel }: Caller): ServiceAsks {
  const options = { timeoutMs, signal: cancel };
  return {
    find: async (id, state) => {
      try {
        const answer = await calls.operation("asks", clientName)({ query: { state } }, options);
        return asksIn(answer).find((ask) => ask.id === id) ?? null;
      } catch (thrown) {
        if (thrown instanceof CapsemError) return null;
        throw thrown;
      }
    },
    resolve: async (id, choice) => {
      const note = noteOf(choice);
      const body =
        choice.kind === "approve" ? { approve: true, scope: choice.scope, note } : { approve: false, note };
      await calls.operation("askResolve", clientName)({ params: { id }, body }, options);
    },
  };
}

/** Of a form that this version can show. */
function asksIn(answer: unknown): AskInfo[] {
  const { asks } = answer as { asks?: unknown };
  return Array.isArray(asks) ? asks.filter(isAsk) : [];
}

const TEXTS = ["id", "title", "type", "rule_id", "reason"] as const;
const TIMES = ["created_at", "expires_at"] as const;

function isAsk(value: unknown): value is AskInfo {
  if (typeof value !== "object" || value === null) return false;
  const ask = value as Readonly<Record<string, unknown>>;
  return (
    TEXTS.every((name) => typeof ask[name] === "string") &&
    TIMES.every((name) => !Number.isNaN(Date.parse(String(ask[name]))))
  );
}
