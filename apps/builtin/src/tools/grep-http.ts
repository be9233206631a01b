import { Failure } from "@capsem/base";
import { FETCH_LIMITS, PATTERN_LIMITS, TEXT_LIMITS } from "../limits.ts";
import { searchText } from "../line-search.ts";
import { mediaOf } from "../media.ts";
import { TEXT_FORMATS } from "../page-text.ts";
import { Matcher } from "../pattern/matcher.ts";
import { webFetch } from "../web-fetch.ts";
import { Arguments } from "./arguments.ts";
import { fetchFacts, isFailedStatus, type Tool } from "./tool.ts";

const lineList = { type: "array", items: { type: "string" } };

export const grepHttp: Tool = {
  definition: {
    name: "grep_http",
    title: "Search a web page",
    description:
      "Fetches a URL and gives the lines in which a pattern is found, with their numbers. HTML is searched as Markdown, other texts as they are.",
    inputSchema: {
      type: "object",
      properties: {
        url: { type: "string", description: "http or https", maxLength: FETCH_LIMITS.urlCharactersMax },
        pattern: {
          type: "string",
          minLength: 1,
          maxLength: PATTERN_LIMITS.charactersMax,
          description: "A regular expression as RE2 has them: no look-around, no back references",
        },
        format: {
          type: "string",
          enum: TEXT_FORMATS,
          default: "markdown",
          description: "What of HTML is searched: the whole page, its article alone, or its source",
        },
        context: {
          type: "integer",
          minimum: 0,
          maximum: TEXT_LIMITS.contextMax,
          default: 0,
          description: "Lines before and behind each match",
        },
        max_matches: {
          type: "integer",
          minimum: 1,
          maximum: TEXT_LIMITS.matchesMax,
          default: TEXT_LIMITS.matchesDefault,
        },
        ignore_case: { type: "boolean", default: false },
      },
      required: ["url", "pattern"],
      additionalProperties: false,
    },
    outputSchema: {
      type: "object",
      properties: {
        url: { type: "string", description: "Where it came from in the end" },
        status: { type: "integer" },
        mime_type: { type: "string" },
        matches: {
          type: "array",
          items: {
            type: "object",
            properties: {
              line: { type: "integer", description: "From 1" },
              text: { type: "string" },
              is_cut: { type: "boolean", description: "The line is longer: this lies around the match" },
              before: lineList,
              after: lineList,
            },
            required: ["line", "text", "is_cut", "before", "after"],
            additionalProperties: false,
          },
        },
        total_matches: { type: "integer", description: "Lines that match, shown or not" },
        total_lines: { type: "integer" },
        is_cut: { type: "boolean", description: "Not all of them are shown" },
      },
      required: ["url", "status", "mime_type", "matches", "total_matches", "total_lines", "is_cut"],
      additionalProperties: false,
    },
    annotations: {
      title: "Search a web page",
      readOnlyHint: true,
      destructiveHint: false,
      idempotentHint: true,
      openWorldHint: true,
    },
  },
  async call({ arguments: given, timeoutMs, traceId, signal }, parts) {
    const names = ["url", "pattern", "format", "context", "max_matches", "ignore_case"];
    const values = new Arguments(given, names);
    const url = values.text("url", FETCH_LIMITS.urlCharactersMax);
    const pattern = values.text("pattern", PATTERN_LIMITS.charactersMax);
    const format = values.choice("format", TEXT_FORMATS, "markdown");
    const ignoreCase = values.flag("ignore_case", false);
    const options = {
      context: values.integer("context", 0, TEXT_LIMITS.contextMax, 0),
      matchesMax: values.integer("max_matches", 1, TEXT_LIMITS.matchesMax, TEXT_LIMITS.matchesDefault),
    };
    // Nothing is dialled for a pattern that is none.
    checkPattern(pattern);
    const request = {
      url,
      method: "GET" as const,
      accept: "*/*",
      readsBody: true,
      timeoutMs,
      traceId,
      signal,
    };
    const answer = await webFetch(parts, request);
    const { mimeType, charset, kind } = mediaOf(answer.headers, answer.bytes);
    if (kind === "binary") {
      throw new Failure("binary", `Cannot search the content: it is binary (${mimeType})`);
    }
    const source = { body: answer.bytes, charset, isHtml: kind === "html", url: answer.url, format };
    const found = await parts.pages.run("search", { source, pattern, ignoreCase, options }, signal);
    return {
      content: [{ type: "text", text: searchText(found) }],
      structuredContent: { url: answer.url, status: answer.status, mime_type: mimeType, ...found },
      isError: isFailedStatus(answer.status),
      _meta: fetchFacts(answer),
    };
  },
};

function checkPattern(pattern: string): void {
  if (pattern === "") throw new Failure("invalid_input", "Cannot call the tool: pattern is empty");
  new Matcher(pattern, false);
}
