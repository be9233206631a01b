import * as z from "zod";
import { finalText, named, type StubAnswer, type StubPlan } from "./stub-plan.ts";

const request = z.looseObject({
  model: z.string().default("stub"),
  stream: z.boolean().default(false),
  tools: z.array(named).default([]),
  messages: z.array(
    z.looseObject({
      content: z.union([
        z.string(),
        z.array(z.looseObject({ type: z.string(), content: z.unknown().optional() })),
      ]),
    }),
  ),
});

/** POST /v1/messages: one turn of a client of Anthropic's Messages API, whole or as a stream. */
export function answerMessages(body: unknown, { tool, args }: StubPlan): StubAnswer {
  const { model, stream, tools, messages } = request.parse(body);
  const offered = tools.flatMap(({ name }) => name ?? []);
  const last = messages.at(-1)?.content;
  const given = Array.isArray(last) ? last.find(({ type }) => type === "tool_result") : undefined;
  const result = given === undefined ? null : JSON.stringify(given.content);
  const asked = result === null ? (offered.find((name) => tool.test(name)) ?? null) : null;
  const block =
    asked === null
      ? { type: "text", text: finalText(result) }
      : { type: "tool_use", id: "toolu_stub", name: asked, input: args };
  const stopReason = asked === null ? "end_turn" : "tool_use";
  const message = {
    id: "msg_stub",
    type: "message",
    role: "assistant",
    model,
    stop_sequence: null,
    usage: { input_tokens: 1, output_tokens: 1 },
  };
  const turn = { api: "anthropic", offered, asked, result } as const;
  if (!stream) return { turn, body: { json: { ...message, content: [block], stop_reason: stopReason } } };
  const start = asked === null ? { type: "text", text: "" } : { ...block, input: {} };
  const delta =
    asked === null
      ? { type: "text_delta", text: finalText(result) }
      : { type: "input_json_delta", partial_json: JSON.stringify(args) };
  const events = [
    { type: "message_start", message: { ...message, content: [], stop_reason: null } },
    { type: "content_block_start", index: 0, content_block: start },
    { type: "content_block_delta", index: 0, delta },
    { type: "content_block_stop", index: 0 },
    {
      type: "message_delta",
      delta: { stop_reason: stopReason, stop_sequence: null },
      usage: { output_tokens: 1 },
    },
    { type: "message_stop" },
  ];
  return { turn, body: { events: events.map((event) => [event.type, event]) } };
}
