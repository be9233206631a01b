import * as z from "zod";
import { finalText, named, type StubAnswer, type StubPlan } from "./stub-plan.ts";

const request = z.looseObject({
  // A namespace is one server's tools; the model asks for its name and the tool's apart.
  tools: z.array(named.extend({ type: z.string(), tools: z.array(named).optional() })).default([]),
  input: z.array(z.looseObject({ type: z.string().optional(), output: z.unknown().optional() })).default([]),
});

interface Offer {
  readonly namespace: string | null;
  readonly name: string;
}

/** POST /v1/responses: one turn of a client of OpenAI's Responses API, as a stream. */
export function answerResponses(body: unknown, { tool, args }: StubPlan): StubAnswer {
  const { tools, input } = request.parse(body);
  const offers = tools.flatMap((entry): Offer[] =>
    (entry.tools ?? [entry]).flatMap(({ name }) =>
      name === undefined
        ? []
        : [{ namespace: entry.tools === undefined ? null : (entry.name ?? null), name }],
    ),
  );
  const fullName = ({ namespace, name }: Offer) => (namespace === null ? name : `${namespace}__${name}`);
  const given = input.find(({ type }) => type === "function_call_output");
  const result = given === undefined ? null : JSON.stringify(given.output);
  const ask = result === null ? offers.find((offer) => tool.test(fullName(offer))) : undefined;
  const item =
    ask === undefined
      ? {
          type: "message",
          id: "msg_stub",
          role: "assistant",
          content: [{ type: "output_text", text: finalText(result), annotations: [] }],
        }
      : {
          type: "function_call",
          id: "fc_stub",
          call_id: "call_stub",
          name: ask.name,
          ...(ask.namespace === null ? {} : { namespace: ask.namespace }),
          arguments: JSON.stringify(args),
        };
  const done = { ...item, status: "completed" };
  const usage = {
    input_tokens: 1,
    input_tokens_details: { cached_tokens: 0 },
    output_tokens: 1,
    output_tokens_details: { reasoning_tokens: 0 },
    total_tokens: 2,
  };
  const events = [
    { type: "response.created", response: { id: "resp_stub", status: "in_progress", output: [] } },
    { type: "response.output_item.added", output_index: 0, item: { ...item, status: "in_progress" } },
    { type: "response.output_item.done", output_index: 0, item: done },
    {
      type: "response.completed",
      response: { id: "resp_stub", status: "completed", output: [done], usage },
    },
  ];
  return {
    turn: {
      api: "openai",
      offered: offers.map(fullName),
      asked: ask === undefined ? null : fullName(ask),
      result,
    },
    body: { events: events.map((event) => [event.type, event]) },
  };
}
