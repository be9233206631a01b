import { Failure } from "@capsem/base";
import { decodeText } from "../charset.ts";
import { FETCH_LIMITS, TEXT_LIMITS } from "../limits.ts";
import { type Media, mediaOf } from "../media.ts";
import { TEXT_FORMATS, type TextFormat } from "../page-text.ts";
import { pageOf, type TextPage } from "../text-page.ts";
import { type WebAnswer, webFetch } from "../web-fetch.ts";
import { Arguments } from "./arguments.ts";
import { fetchFacts, isFailedStatus, type Tool, type ToolCall, type ToolParts } from "./tool.ts";

interface Asked {
  readonly format: TextFormat;
  readonly offset: number;
  readonly charsMax: number;
}

export const fetchHttp: Tool = {
  definition: {
    name: "fetch_http",
    title: "Fetch a web page",
    description:
      "Fetches a URL and gives its text. HTML comes as Markdown; JSON and other texts come as they are, without a character added. Long texts come in parts: ask again with offset set to next_offset.",
    inputSchema: {
      type: "object",
      properties: {
        url: { type: "string", description: "http or https", maxLength: FETCH_LIMITS.urlCharactersMax },
        format: {
          type: "string",
          enum: TEXT_FORMATS,
          default: "markdown",
          description:
            "Of HTML: markdown is the whole page, content its article alone, raw the page as it is. Binary content comes with raw alone, as base64",
        },
        offset: { type: "integer", minimum: 0, default: 0, description: "Where to begin, in characters" },
        max_chars: {
          type: "integer",
          minimum: 1,
          maximum: TEXT_LIMITS.charsMax,
          default: TEXT_LIMITS.charsDefault,
          description: "How much of it to give",
        },
      },
      required: ["url"],
      additionalProperties: false,
    },
    outputSchema: {
      type: "object",
      properties: {
        url: { type: "string", description: "Where it came from in the end" },
        status: { type: "integer" },
        mime_type: { type: "string" },
        format: {
          type: "string",
          enum: [...TEXT_FORMATS, "base64"],
          description: "As it is given: a page without an article as markdown, a text that is no HTML as raw",
        },
        title: { type: ["string", "null"] },
        text: { type: "string", description: "This part; empty where it is base64" },
        offset: { type: "integer" },
        total_chars: { type: "integer", description: "Of the whole text; of base64, bytes" },
        next_offset: {
          type: ["integer", "null"],
          description: "Where the next part begins; null after the last",
        },
      },
      required: [
        "url",
        "status",
        "mime_type",
        "format",
        "title",
        "text",
        "offset",
        "total_chars",
        "next_offset",
      ],
      additionalProperties: false,
    },
    annotations: {
      title: "Fetch a web page",
      readOnlyHint: true,
      destructiveHint: false,
      idempotentHint: true,
      openWorldHint: true,
    },
  },
  async call(call, parts) {
    const values = new Arguments(call.arguments, ["url", "format", "offset", "max_chars"]);
    const url = values.text("url", FETCH_LIMITS.urlCharactersMax);
    const asked: Asked = {
      format: values.choice("format", TEXT_FORMATS, "markdown"),
      offset: values.integer("offset", 0, Number.MAX_SAFE_INTEGER, 0),
      charsMax: values.integer("max_chars", 1, TEXT_LIMITS.charsMax, TEXT_LIMITS.charsDefault),
    };
    const { timeoutMs, traceId, signal } = call;
    const request = {
      url,
      method: "GET" as const,
      accept: ACCEPT,
      readsBody: true,
      timeoutMs,
      traceId,
      signal,
    };
    const answer = await webFetch(parts, request);
    const media = mediaOf(answer.headers, answer.bytes);
    if (media.kind === "binary") return binaryResult(answer, media, asked);
    const page = await textOfPage(answer, media, asked, call, parts);
    return textResult(answer, media, page);
  },
};

const ACCEPT = "text/html,application/xhtml+xml,application/json;q=0.9,text/*;q=0.9,*/*;q=0.8";
/** A text up to here is read at once: less than a thread takes to be asked. */
const SMALL_BYTES = 512 * 1024;

type GivenPage = TextPage & { readonly title: string | null; readonly format: TextFormat };

async function textOfPage(
  { bytes, url }: WebAnswer,
  { charset, kind }: Media,
  { format, offset, charsMax }: Asked,
  { signal }: ToolCall,
  { pages }: ToolParts,
): Promise<GivenPage> {
  const isHtml = kind === "html";
  if ((!isHtml || format === "raw") && bytes.length <= SMALL_BYTES) {
    return { ...pageOf(decodeText(bytes, charset, isHtml), offset, charsMax), title: null, format: "raw" };
  }
  const source = { body: bytes, charset, isHtml, url, format };
  return pages.run("convert", { source, offset, charsMax }, signal);
}

function textResult(answer: WebAnswer, { mimeType }: Media, page: GivenPage): object {
  return {
    content: [{ type: "text", text: page.text }],
    structuredContent: {
      url: answer.url,
      status: answer.status,
      mime_type: mimeType,
      format: page.format,
      title: page.title,
      text: page.text,
      offset: page.offset,
      total_chars: page.totalChars,
      next_offset: page.nextOffset,
    },
    isError: isFailedStatus(answer.status),
    _meta: fetchFacts(answer),
  };
}

/** Whole or not at all: a part of an image is none. */
function binaryResult(answer: WebAnswer, { mimeType }: Media, { format }: Asked): object {
  const { bytes, status, url } = answer;
  if (format !== "raw") {
    const words = `it is binary (${mimeType}, ${bytes.length} bytes); the format raw gives it as base64`;
    throw new Failure("binary", `Cannot give the content as text: ${words}`);
  }
  if (bytes.length > FETCH_LIMITS.binaryBytesMax) {
    const words = `${bytes.length} bytes of ${mimeType}, limit ${FETCH_LIMITS.binaryBytesMax}`;
    throw new Failure("too_large", `Cannot give the content as base64: ${words}`);
  }
  return {
    content: [binaryBlock(url, mimeType, Buffer.from(bytes).toString("base64"))],
    structuredContent: {
      ...{ url, status, mime_type: mimeType, format: "base64", title: null, text: "" },
      ...{ offset: 0, total_chars: bytes.length, next_offset: null },
    },
    isError: isFailedStatus(status),
    _meta: fetchFacts(answer),
  };
}

function binaryBlock(uri: string, mimeType: string, data: string): object {
  if (mimeType.startsWith("image/")) return { type: "image", data, mimeType };
  if (mimeType.startsWith("audio/")) return { type: "audio", data, mimeType };
  return { type: "resource", resource: { uri, mimeType, blob: data } };
}
