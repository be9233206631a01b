import { Arguments } from "./arguments.ts";
import type { Tool } from "./tool.ts";

/** A message is bounded by its transport; this is beyond each. */
const ECHO_CHARS_MAX = 16 * 1024 * 1024;

/** Nothing but the way to it and back: what it takes is what the way takes. */
export const echo: Tool = {
  definition: {
    name: "echo",
    title: "Echo",
    description:
      "Answers with the text that it is given. It does nothing else, so it measures the way to it.",
    inputSchema: {
      type: "object",
      properties: { text: { type: "string", description: "What to answer with" } },
      required: ["text"],
      additionalProperties: false,
    },
    outputSchema: {
      type: "object",
      properties: { chars: { type: "integer", description: "UTF-16 units of the text" } },
      required: ["chars"],
      additionalProperties: false,
    },
    annotations: {
      title: "Echo",
      readOnlyHint: true,
      destructiveHint: false,
      idempotentHint: true,
      openWorldHint: false,
    },
  },
  call({ arguments: given }) {
    const text = new Arguments(given, ["text"]).text("text", ECHO_CHARS_MAX);
    return { content: [{ type: "text", text }], structuredContent: { chars: text.length } };
  },
};
