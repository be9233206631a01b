import { TOOLS, type Tool } from "@capsem/api";
import * as z from "zod";
import type { ListedTool } from "./mcp-sdk.ts";

/** All tools as `tools/list` has them. The product's bundle has the result of this in its place (tools/mcp-parts.mjs). */
export function listTools(): ListedTool[] {
  return Object.entries(TOOLS as Readonly<Record<string, Tool>>).map(([name, tool]) => ({
    name,
    title: tool.title,
    description: tool.description,
    inputSchema: schemaOf(tool.input, "input"),
    outputSchema: schemaOf(tool.output, "output"),
    annotations: { title: tool.title, ...tool.annotations },
  }));
}

type ObjectSchema = ListedTool["inputSchema"];

function schemaOf(schema: z.ZodObject, io: "input" | "output"): ObjectSchema {
  const json = z.toJSONSchema(schema, {
    io,
    // A newer service may add fields to a result, and clients check it against this.
    override: ({ jsonSchema }) => {
      if (io === "output" && jsonSchema.additionalProperties === false)
        delete jsonSchema.additionalProperties;
    },
  });
  // Without it a schema is of the protocol's own dialect, which is the same one; some clients refuse the word.
  const { $schema: _, ...rest } = json;
  return rest as ObjectSchema;
}
