import * as z from "zod";

/** What the stub does: it asks for the first offered tool whose name matches, with these arguments. */
export interface StubPlan {
  readonly tool: RegExp;
  readonly args: Readonly<Record<string, unknown>>;
}

/** One request of a model client, as far as a test looks at it. */
export interface StubTurn {
  readonly api: "anthropic" | "openai" | "gemini";
  /** Names of the tools that the client offered to the model. */
  readonly offered: readonly string[];
  /** The tool that the stub asked for; null when it did not. */
  readonly asked: string | null;
  /** What the client gave back for the tool that was asked for, as JSON; null before that. */
  readonly result: string | null;
}

/** A turn and the answer to it: one JSON body, or server-sent events. */
export interface StubAnswer {
  readonly turn: StubTurn;
  readonly body:
    | { readonly json: unknown }
    | { readonly events: readonly (readonly [string | null, object])[] };
}

/** The last words of a stub that was given a result; a test looks for them in what the client prints. */
export const LAST_WORDS = "the tool said";
/** The words of a stub that was offered no tool of the plan. */
export const NO_TOOL = "no tool to ask for";

export const finalText = (result: string | null): string =>
  result === null ? NO_TOOL : `${LAST_WORDS} ${result}`;

/** Parts that the stub does not look at are free to be anything. */
export const named = z.looseObject({ name: z.string().optional() });
