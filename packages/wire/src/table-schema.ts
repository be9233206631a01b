import * as z from "zod";
import { FRAME_TYPES, RESET_CODES } from "./frame.ts";
import { JOB_CHUNK_KINDS } from "./job-chunks.ts";
import { WIRE_GENERATION } from "./lane-hello.ts";
import { WIRE_LIMITS } from "./limits.ts";
import { GUEST_MESSAGES, HOST_MESSAGES, RESERVED_NUMBERS } from "./message-table.ts";
import { PORTS } from "./port-table.ts";

export interface MessageSchema {
  readonly number: number;
  readonly name: string;
  readonly sender: "host" | "guest";
  /** JSON Schema of the body; the type "bytes" stands for MessagePack bin. */
  readonly body: JsonSchema;
}

export interface JsonSchema {
  readonly type?: string;
  readonly enum?: readonly unknown[];
  readonly properties?: Readonly<Record<string, JsonSchema>>;
  readonly required?: readonly string[];
  readonly items?: JsonSchema;
}

/** All that two ends must agree on, as plain data. Its text is frozen in `message-table.golden.json`. */
export function describeTable(): object {
  return {
    wire: WIRE_GENERATION,
    frameTypes: FRAME_TYPES,
    resetCodes: RESET_CODES,
    jobChunkKinds: JOB_CHUNK_KINDS,
    ports: PORTS,
    limits: WIRE_LIMITS,
    messages: messageSchemas(),
    reserved: RESERVED_NUMBERS,
  };
}

/** The text whose SHA-256, cut to 32 digits, is the table's hash. */
export function tableText(): string {
  return `${JSON.stringify(describeTable(), null, 2)}\n`;
}

export function messageSchemas(): readonly MessageSchema[] {
  const host = Object.entries(HOST_MESSAGES).map(([name, entry]) => schemaOf("host", name, entry));
  const guest = Object.entries(GUEST_MESSAGES).map(([name, entry]) => schemaOf("guest", name, entry));
  return [...host, ...guest].sort((left, right) => left.number - right.number);
}

function schemaOf(
  sender: MessageSchema["sender"],
  name: string,
  entry: { readonly number: number; readonly schema: z.ZodType },
): MessageSchema {
  const { $schema: _, ...body } = z.toJSONSchema(entry.schema, {
    unrepresentable: "any",
    override: ({ zodSchema, jsonSchema }) => {
      if (zodSchema._zod.def.type === "custom") Object.assign(jsonSchema, { type: "bytes" });
    },
  });
  return { number: entry.number, name, sender, body: body as JsonSchema };
}
