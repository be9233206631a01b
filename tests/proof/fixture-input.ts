/** The tools that ask their client something: by `input_required`, which the SDK turns into requests for older clients. */
import { randomBytes } from "node:crypto";
import {
  acceptedContent,
  createRequestStateCodec,
  type ElicitRequestFormParams,
  inputRequired,
  inputResponse,
  type ServerContext,
} from "@modelcontextprotocol/server";
import { declares, type FixtureTool, object, text } from "./fixture-tools.ts";

type FormSchema = ElicitRequestFormParams["requestedSchema"];

/** State that comes back is proved to be ours, whichever request brings it. */
export const stateCodec = createRequestStateCodec<{ step: string }>({ key: randomBytes(32) });

const ask = (message: string, requestedSchema: FormSchema) =>
  inputRequired.elicit({ message, requestedSchema });
const form = (name: string): FormSchema => ({
  type: "object",
  properties: { [name]: { type: "string" } },
  required: [name],
});
const sample = (words: string, maxTokens: number) =>
  inputRequired.createMessage({
    messages: [{ role: "user", content: { type: "text", text: words } }],
    maxTokens,
  });
const CONFIRM: FormSchema = { type: "object", properties: { ok: { type: "boolean" } }, required: ["ok"] };
const USER: FormSchema = {
  type: "object",
  properties: {
    username: { type: "string", description: "User's response" },
    email: { type: "string", description: "User's email address" },
  },
  required: ["username", "email"],
};
const DEFAULTS: FormSchema = {
  type: "object",
  properties: {
    name: { type: "string", default: "John Doe" },
    age: { type: "integer", default: 30 },
    score: { type: "number", default: 95.5 },
    status: { type: "string", enum: ["active", "inactive", "pending"], default: "active" },
    verified: { type: "boolean", default: true },
  },
};
const titled = (...all: readonly (readonly [string, string])[]) =>
  all.map(([value, title]) => ({ const: value, title }));
const ENUMS: FormSchema = {
  type: "object",
  properties: {
    untitledSingle: { type: "string", enum: ["option1", "option2", "option3"] },
    titledSingle: {
      type: "string",
      oneOf: titled(["value1", "First Option"], ["value2", "Second Option"], ["value3", "Third Option"]),
    },
    legacyEnum: {
      type: "string",
      enum: ["opt1", "opt2", "opt3"],
      enumNames: ["Option One", "Option Two", "Option Three"],
    },
    untitledMulti: { type: "array", items: { type: "string", enum: ["option1", "option2", "option3"] } },
    titledMulti: {
      type: "array",
      items: {
        anyOf: titled(["value1", "First Choice"], ["value2", "Second Choice"], ["value3", "Third Choice"]),
      },
    },
  },
};

/** Asks with one form, and says what came back. */
function asking(
  words: string,
  schema: FormSchema | ((args: Readonly<Record<string, unknown>>) => FormSchema),
) {
  return (args: Readonly<Record<string, unknown>>, { mcpReq }: ServerContext) => {
    const answer = inputResponse(mcpReq.inputResponses, "form");
    if (answer.kind === "elicit")
      return text(`${words}: action=${answer.action}, content=${JSON.stringify(answer.content)}`);
    const requestedSchema = typeof schema === "function" ? schema(args) : schema;
    return inputRequired({ inputRequests: { form: ask(String(args.message ?? words), requestedSchema) } });
  };
}

function greet(_args: unknown, { mcpReq }: ServerContext) {
  const named = acceptedContent<{ name?: string }>(mcpReq.inputResponses, "user_name");
  if (typeof named?.name === "string") return text(`Hello, ${named.name}!`);
  return inputRequired({ inputRequests: { user_name: ask("What is your name?", form("name")) } });
}

function capital(_args: unknown, { mcpReq }: ServerContext) {
  const answer = inputResponse(mcpReq.inputResponses, "capital_question");
  if (answer.kind === "sampling") return text(JSON.stringify(answer.result.content));
  return inputRequired({
    inputRequests: { capital_question: sample("What is the capital of France?", 100) },
  });
}

function roots(_args: unknown, { mcpReq }: ServerContext) {
  const answer = inputResponse(mcpReq.inputResponses, "client_roots");
  if (answer.kind === "roots") return text(answer.roots.map(({ uri }) => uri).join(" "));
  return inputRequired({ inputRequests: { client_roots: inputRequired.listRoots() } });
}

async function confirm(_args: unknown, context: ServerContext) {
  const { mcpReq } = context;
  const state = mcpReq.requestState<{ step: string }>();
  if (state !== undefined && inputResponse(mcpReq.inputResponses, "confirm").kind === "elicit")
    return text(`state-ok ${state.step}`);
  const requestState = await stateCodec.mint({ step: "confirm" }, context);
  return inputRequired({ inputRequests: { confirm: ask("Please confirm", CONFIRM) }, requestState });
}

async function many(_args: unknown, context: ServerContext) {
  const { mcpReq } = context;
  const kinds = ["user_name", "greeting", "client_roots"].map(
    (key) => inputResponse(mcpReq.inputResponses, key).kind,
  );
  if (mcpReq.requestState() !== undefined && !kinds.includes("missing")) return text(kinds.join(" "));
  return inputRequired({
    inputRequests: {
      user_name: ask("What is your name?", form("name")),
      greeting: sample("Generate a greeting", 50),
      client_roots: inputRequired.listRoots(),
    },
    requestState: await stateCodec.mint({ step: "many" }, context),
  });
}

async function rounds(_args: unknown, context: ServerContext) {
  const { mcpReq } = context;
  const step = mcpReq.requestState<{ step: string }>()?.step;
  const has = (key: string) => inputResponse(mcpReq.inputResponses, key).kind === "elicit";
  if (step === "2" && has("step2")) return text("both steps done");
  const isSecond = step === "1" && has("step1");
  const requestState = await stateCodec.mint({ step: isSecond ? "2" : "1" }, context);
  const inputRequests: Parameters<typeof inputRequired>[0]["inputRequests"] = isSecond
    ? { step2: ask("Step 2: What is your favorite color?", form("color")) }
    : { step1: ask("Step 1: What is your name?", form("name")) };
  return inputRequired({ inputRequests, requestState });
}

/** Asks only what its client can answer. */
function capabilities(_args: unknown, context: ServerContext) {
  const answered = Object.keys(context.mcpReq.inputResponses ?? {});
  if (answered.length > 0) return text(answered.join(" "));
  return inputRequired({
    inputRequests: {
      ...(declares(context, "sampling") ? { sampled: sample("Say something", 10) } : {}),
      ...(declares(context, "elicitation") ? { user_name: ask("What is your name?", form("name")) } : {}),
    },
  });
}

function sampled({ prompt }: Readonly<Record<string, unknown>>, { mcpReq }: ServerContext) {
  const answer = inputResponse(mcpReq.inputResponses, "sampled");
  if (answer.kind === "sampling") return text(`LLM response: ${JSON.stringify(answer.result.content)}`);
  return inputRequired({ inputRequests: { sampled: sample(String(prompt), 100) } });
}

const string = { type: "string" } as const;
const tool = (call: FixtureTool["call"]): FixtureTool => ({ schema: object(), call });

export const INPUT_TOOLS: Readonly<Record<string, FixtureTool>> = {
  test_elicitation: { schema: object({ message: string }), call: asking("User response", USER) },
  test_elicitation_sep1034_defaults: tool(asking("Elicitation completed", DEFAULTS)),
  test_elicitation_sep1330_enums: tool(asking("Elicitation completed", ENUMS)),
  test_streaming_elicitation: tool(asking("Streamed", CONFIRM)),
  // Needs what its client has not declared, and then the SDK refuses it.
  test_missing_capability: tool(sampled),
  test_sampling: { schema: object({ prompt: string }), call: sampled },
  test_input_required_result_elicitation: tool(greet),
  test_input_required_result_sampling: tool(capital),
  test_input_required_result_list_roots: tool(roots),
  test_input_required_result_request_state: tool(confirm),
  test_input_required_result_tampered_state: tool(confirm),
  test_input_required_result_multiple_inputs: tool(many),
  test_input_required_result_multi_round: tool(rounds),
  test_input_required_result_capabilities: tool(capabilities),
};
