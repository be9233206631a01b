import { renderBytes } from "./render.ts";

/** Texts as they are, what else there is by its type and size; without any, the structured content. */
export function resultLines(result: Readonly<Record<string, unknown>>): string[] {
  const { content, structuredContent } = result;
  const parts = Array.isArray(content) ? content.map(partText) : [];
  if (parts.length > 0) return parts;
  return structuredContent === undefined ? [] : [JSON.stringify(structuredContent, null, 2)];
}

function partText(part: unknown): string {
  if (!isRecord(part)) return JSON.stringify(part);
  const { type, text, data, mimeType, uri, resource } = part;
  if (type === "text" && typeof text === "string") return text;
  if (typeof data === "string") {
    const size = renderBytes(base64Bytes(data));
    return `[${String(type)}, ${String(mimeType ?? "unknown type")}, ${size}: --json has it]`;
  }
  if (type === "resource_link") return `[resource ${String(uri)}]`;
  if (isRecord(resource)) return typeof resource.text === "string" ? resource.text : resourceText(resource);
  return JSON.stringify(part);
}

/** Of what it stands for, with or without the signs that fill it up. */
function base64Bytes(text: string): number {
  return Math.floor((text.replace(/=+$/, "").length * 3) / 4);
}

function resourceText(resource: Readonly<Record<string, unknown>>): string {
  return `[resource ${String(resource.uri)}: --json has it]`;
}

function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
