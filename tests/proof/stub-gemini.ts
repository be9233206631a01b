import * as z from "zod";
import { finalText, named, type StubAnswer, type StubPlan } from "./stub-plan.ts";

const request = z.looseObject({
  tools: z.array(z.looseObject({ functionDeclarations: z.array(named).default([]) })).default([]),
  contents: z
    .array(
      z.looseObject({
        parts: z.array(z.looseObject({ functionResponse: z.unknown().optional() })).default([]),
      }),
    )
    .default([]),
});

/** POST …:generateContent and …:streamGenerateContent: one turn of a client of the Gemini API. */
export function answerContents(body: unknown, { tool, args }: StubPlan, stream: boolean): StubAnswer {
  const { tools, contents } = request.parse(body);
  const offered = tools.flatMap(({ functionDeclarations }) =>
    functionDeclarations.flatMap(({ name }) => name ?? []),
  );
  const parts = contents.at(-1)?.parts ?? [];
  const given = parts.find(({ functionResponse }) => functionResponse !== undefined)?.functionResponse;
  const result = given === undefined ? null : JSON.stringify(given);
  const asked = result === null ? (offered.find((name) => tool.test(name)) ?? null) : null;
  const part = asked === null ? { text: finalText(result) } : { functionCall: { name: asked, args } };
  const reply = {
    candidates: [{ index: 0, content: { role: "model", parts: [part] }, finishReason: "STOP" }],
    usageMetadata: { promptTokenCount: 1, candidatesTokenCount: 1, totalTokenCount: 2 },
    modelVersion: "stub",
  };
  const turn = { api: "gemini", offered, asked, result } as const;
  return { turn, body: stream ? { events: [[null, reply]] } : { json: reply } };
}
