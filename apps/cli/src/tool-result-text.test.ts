import { expect, test } from "vitest";
import { resultLines } from "./tool-result-text.ts";

const base64 = (bytes: number) => Buffer.alloc(bytes).toString("base64");

test.each([
  [0, "0 B"],
  [1, "1 B"],
  [2, "2 B"],
  [3, "3 B"],
  [8, "8 B"],
  [2048, "2.0 KiB"],
])("an image of %i bytes is told by its size", (bytes, size) => {
  const part = (data: string) => ({ type: "image", mimeType: "image/png", data });
  const told = `[image, image/png, ${size}: --json has it]`;
  expect(resultLines({ content: [part(base64(bytes))] })).toEqual([told]);
  expect(resultLines({ content: [part(base64(bytes).replaceAll("=", ""))] })).toEqual([told]);
});

test("texts are told as they are, and what is structured where there is nothing else", () => {
  const content = [
    { type: "text", text: "one" },
    { type: "resource_link", uri: "a://b" },
  ];
  expect(resultLines({ content, structuredContent: { a: 1 } })).toEqual(["one", "[resource a://b]"]);
  expect(resultLines({ content: [], structuredContent: { a: 1 } })).toEqual(['{\n  "a": 1\n}']);
});
