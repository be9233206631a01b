import { FETCH_LIMITS } from "../limits.ts";
import { webFetch } from "../web-fetch.ts";
import { Arguments } from "./arguments.ts";
import { fetchFacts, type Tool } from "./tool.ts";

export const httpHeaders: Tool = {
  definition: {
    name: "http_headers",
    title: "HTTP headers",
    description:
      "The status and the headers that a web server answers with, and the redirects on the way. The body is not read.",
    inputSchema: {
      type: "object",
      properties: {
        url: { type: "string", description: "http or https", maxLength: FETCH_LIMITS.urlCharactersMax },
        method: {
          type: "string",
          enum: ["HEAD", "GET"],
          default: "HEAD",
          description: "GET for servers that answer HEAD differently",
        },
      },
      required: ["url"],
      additionalProperties: false,
    },
    outputSchema: {
      type: "object",
      properties: {
        url: { type: "string", description: "Where the answer came from in the end" },
        status: { type: "integer" },
        headers: {
          type: "array",
          description: "In the server's order; names in lower case",
          items: {
            type: "object",
            properties: { name: { type: "string" }, value: { type: "string" } },
            required: ["name", "value"],
            additionalProperties: false,
          },
        },
        redirects: {
          type: "array",
          items: {
            type: "object",
            properties: {
              status: { type: "integer" },
              from: { type: "string" },
              to: { type: "string" },
            },
            required: ["status", "from", "to"],
            additionalProperties: false,
          },
        },
      },
      required: ["url", "status", "headers", "redirects"],
      additionalProperties: false,
    },
    annotations: {
      title: "HTTP headers",
      readOnlyHint: true,
      destructiveHint: false,
      idempotentHint: true,
      openWorldHint: true,
    },
  },
  async call({ arguments: given, timeoutMs, traceId, signal }, parts) {
    const values = new Arguments(given, ["url", "method"]);
    const url = values.text("url", FETCH_LIMITS.urlCharactersMax);
    const method = values.choice("method", ["HEAD", "GET"], "HEAD");
    const request = { url, method, accept: "*/*", readsBody: false, timeoutMs, traceId, signal };
    const answer = await webFetch(parts, request);
    const headers = answer.headers.map(([name, value]) => ({ name, value }));
    const lines = [
      ...answer.redirects.map(({ status, to }) => `${status} ${to}`),
      `${answer.status} ${answer.url}`,
      ...headers.map(({ name, value }) => `${name}: ${value}`),
    ];
    return {
      content: [{ type: "text", text: lines.join("\n") }],
      structuredContent: { url: answer.url, status: answer.status, headers, redirects: answer.redirects },
      _meta: fetchFacts(answer),
    };
  },
};
