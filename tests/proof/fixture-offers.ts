/** Resources and prompts that the conformance suite asks for by name. */
import {
  acceptedContent,
  completable,
  inputRequired,
  type McpServer,
  ResourceNotFoundError,
  ResourceTemplate,
} from "@modelcontextprotocol/server";
import * as z from "zod";
import { PNG } from "./fixture-tools.ts";

const RESOURCES = [
  ["test://static-text", "text/plain", { text: "This is the content of the static text resource." }],
  ["test://static-binary", "image/png", { blob: PNG }],
  ["test://watched-resource", "text/plain", { text: "Watched resource content" }],
] as const;

export function offerResources(server: McpServer): void {
  for (const [uri, mimeType, content] of RESOURCES) {
    const config = { description: uri, mimeType };
    server.registerResource(uri.slice("test://".length), uri, config, () => ({
      contents: [{ uri, mimeType, ...content }],
    }));
  }
  const template = new ResourceTemplate("test://template/{id}/data", { list: undefined });
  const config = { description: "by id", mimeType: "application/json" };
  server.registerResource("template", template, config, ({ href }, { id }) => {
    if (typeof id !== "string") throw new ResourceNotFoundError(href);
    const data = { id, templateTest: true, data: `Data for ID: ${id}` };
    return { contents: [{ uri: href, mimeType: "application/json", text: JSON.stringify(data) }] };
  });
  const watched = new Set<string>();
  server.server.registerCapabilities({ resources: { subscribe: true } });
  server.server.setRequestHandler("resources/subscribe", ({ params }) => {
    watched.add(params.uri);
    return {};
  });
  server.server.setRequestHandler("resources/unsubscribe", ({ params }) => {
    watched.delete(params.uri);
    return {};
  });
}

const said = (words: string) => ({ role: "user" as const, content: { type: "text" as const, text: words } });
const CITIES = ["paris", "park", "party"];

export function offerPrompts(server: McpServer): void {
  server.registerPrompt("test_simple_prompt", { description: "simple" }, () => ({
    messages: [said("This is a simple prompt for testing.")],
  }));
  const city = () => completable(z.string(), (value) => CITIES.filter((each) => each.startsWith(value)));
  server.registerPrompt(
    "test_prompt_with_arguments",
    { description: "with arguments", argsSchema: z.object({ arg1: city(), arg2: city() }) },
    ({ arg1, arg2 }) => ({ messages: [said(`Prompt with arguments: arg1='${arg1}', arg2='${arg2}'`)] }),
  );
  server.registerPrompt(
    "test_prompt_with_embedded_resource",
    { description: "with a resource", argsSchema: z.object({ resourceUri: z.string() }) },
    ({ resourceUri: uri }) => ({
      messages: [
        {
          role: "user",
          content: {
            type: "resource",
            resource: { uri, mimeType: "text/plain", text: "Embedded resource content for testing." },
          },
        },
        said("Please process the embedded resource above."),
      ],
    }),
  );
  server.registerPrompt("test_prompt_with_image", { description: "with an image" }, () => ({
    messages: [
      { role: "user", content: { type: "image", data: PNG, mimeType: "image/png" } },
      said("Please analyze the image above."),
    ],
  }));
  server.registerPrompt("test_input_required_result_prompt", { description: "asks first" }, ({ mcpReq }) => {
    const given = acceptedContent<{ context?: string }>(mcpReq.inputResponses, "user_context");
    if (given !== undefined) return { messages: [said(`In the context of ${given.context}`)] };
    const requestedSchema = {
      type: "object" as const,
      properties: { context: { type: "string" as const } },
      required: ["context"],
    };
    const message = "What context should the prompt use?";
    return inputRequired({
      inputRequests: { user_context: inputRequired.elicit({ message, requestedSchema }) },
    });
  });
}
