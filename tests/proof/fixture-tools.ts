/** The tools that the conformance suite calls by name, as far as they ask nothing back. */
import type {
  CallToolResult,
  InputRequiredResult,
  JsonSchemaType,
  ServerContext,
} from "@modelcontextprotocol/server";
import { CLIENT_CAPABILITIES_META_KEY } from "@modelcontextprotocol/server";

export interface FixtureTool {
  readonly schema: JsonSchemaType;
  call(
    args: Readonly<Record<string, unknown>>,
    context: ServerContext,
  ): CallToolResult | InputRequiredResult | Promise<CallToolResult | InputRequiredResult>;
}

export const PNG =
  "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg==";
/** One sample of silence, 16 bits at 8 kHz. */
const WAV = Buffer.concat([
  Buffer.from("RIFF\x26\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0", "latin1"),
  Buffer.from([0x40, 0x1f, 0, 0, 0x80, 0x3e, 0, 0, 2, 0, 16, 0]),
  Buffer.from("data\x02\0\0\0\0\0", "latin1"),
]).toString("base64");

export const text = (words: string): CallToolResult => ({ content: [{ type: "text", text: words }] });
const png = { type: "image", data: PNG, mimeType: "image/png" } as const;
const string = { type: "string" } as const;

/** All of them required. */
export function object(properties: Readonly<Record<string, JsonSchemaType>> = {}): JsonSchemaType {
  return { type: "object", properties, required: Object.keys(properties) };
}

/** Its value is in a header too; the SDK's type of a schema knows no such keyword. */
const MIRRORED: JsonSchemaType = Object.assign({ type: "string" as const }, { "x-mcp-header": "Region" });

const pause = () => new Promise((done) => setTimeout(done, 50));

const plain = (result: CallToolResult): FixtureTool => ({ schema: object(), call: () => result });

const SCHEMA_2020_12: JsonSchemaType = {
  $schema: "https://json-schema.org/draft/2020-12/schema",
  type: "object",
  $defs: {
    address: { $anchor: "addressDef", type: "object", properties: { street: string, city: string } },
  },
  properties: {
    name: string,
    address: { $ref: "#/$defs/address" },
    contactMethod: { type: "string", enum: ["phone", "email"] },
    phone: string,
    email: string,
  },
  allOf: [{ anyOf: [{ required: ["phone"] }, { required: ["email"] }] }],
  if: { properties: { contactMethod: { const: "phone" } }, required: ["contactMethod"] },
  // biome-ignore lint/suspicious/noThenProperty: a keyword of JSON Schema
  then: { required: ["phone"] },
  else: { required: ["email"] },
  additionalProperties: false,
};

async function progress(_args: unknown, { mcpReq }: ServerContext): Promise<CallToolResult> {
  const progressToken = mcpReq._meta?.progressToken;
  for (const done of [0, 50, 100]) {
    if (progressToken !== undefined)
      await mcpReq.notify({
        method: "notifications/progress",
        params: { progressToken, progress: done, total: 100 },
      });
    await pause();
  }
  return text(String(progressToken));
}

async function logging(_args: unknown, { mcpReq }: ServerContext): Promise<CallToolResult> {
  await mcpReq.log("info", "Tool execution started");
  await pause();
  await mcpReq.log("info", "Tool processing data");
  await pause();
  await mcpReq.log("info", "Tool execution completed");
  return text("done");
}

async function reconnection(_args: unknown, { http }: ServerContext): Promise<CallToolResult> {
  http?.closeSSE?.();
  await new Promise((done) => setTimeout(done, 100));
  return text("Reconnection test completed");
}

/** What a request says that its client can do. */
export function declares({ mcpReq }: ServerContext, capability: string): boolean {
  const envelope = new Map<string, unknown>(Object.entries(mcpReq.envelope ?? {}));
  return Object.hasOwn(Object(envelope.get(CLIENT_CAPABILITIES_META_KEY)), capability);
}

export const PLAIN_TOOLS: Readonly<Record<string, FixtureTool>> = {
  test_simple_text: plain(text("This is a simple text response for testing.")),
  test_image_content: plain({ content: [png] }),
  test_audio_content: plain({ content: [{ type: "audio", data: WAV, mimeType: "audio/wav" }] }),
  test_embedded_resource: plain({
    content: [
      {
        type: "resource",
        resource: {
          uri: "test://embedded-resource",
          mimeType: "text/plain",
          text: "This is an embedded resource content.",
        },
      },
    ],
  }),
  test_multiple_content_types: plain({
    content: [
      { type: "text", text: "Multiple content types test:" },
      png,
      {
        type: "resource",
        resource: {
          uri: "test://mixed-content-resource",
          mimeType: "application/json",
          text: '{"test":"data","value":123}',
        },
      },
    ],
  }),
  test_error_handling: plain({
    ...text("This tool intentionally returns an error for testing"),
    isError: true,
  }),
  test_tool_with_progress: { schema: object(), call: progress },
  test_tool_with_logging: { schema: object(), call: logging },
  test_logging_tool: { schema: object(), call: logging },
  test_reconnection: { schema: object(), call: reconnection },
  // Its argument is a header too, which client, proxy and server must agree on.
  test_custom_headers: {
    schema: object({ region: MIRRORED }),
    call: ({ region }) => text(`region ${String(region)}`),
  },
  json_schema_2020_12_tool: { schema: SCHEMA_2020_12, call: (args) => text(JSON.stringify(args)) },
};
