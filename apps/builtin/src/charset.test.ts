import { expect, test } from "vitest";
import { decodeText } from "./charset.ts";
import { mediaOf } from "./media.ts";

const bytes = (...parts: (string | number[])[]) =>
  Buffer.concat(
    parts.map((part) => (typeof part === "string" ? Buffer.from(part, "utf8") : Buffer.from(part))),
  );
const META = (charset: string) => `<html><head><meta charset="${charset}"></head>`;

test.each<[string, Uint8Array, string | null, boolean, string]>([
  ["UTF-8 without a word", bytes("caf", [0xc3, 0xa9]), null, false, "café"],
  ["what is no UTF-8 without a word", bytes("caf", [0xe9, 0x80]), null, false, "café€"],
  ["the server's word", bytes([0xcf, 0xcb]), "koi8-r", false, "ок"],
  [
    "the page's own word",
    bytes(META("shift_jis"), [0x93, 0xfa, 0x96, 0x7b]),
    null,
    true,
    `${META("shift_jis")}日本`,
  ],
  [
    "the server's word over the page's",
    bytes(META("shift_jis"), [0xc3, 0xa9]),
    "utf-8",
    true,
    `${META("shift_jis")}é`,
  ],
  [
    "no page's word in what is no page",
    bytes(META("shift_jis"), [0xc3, 0xa9]),
    null,
    false,
    `${META("shift_jis")}é`,
  ],
  ["a mark over the server's word", bytes([0xef, 0xbb, 0xbf], "é"), "iso-8859-1", false, "é"],
  ["UTF-16 by its mark", bytes([0xff, 0xfe, 0x41, 0x00, 0xac, 0x20]), null, false, "A€"],
  ["UTF-16 the other way round", bytes([0xfe, 0xff, 0x00, 0x41, 0x20, 0xac]), null, false, "A€"],
  ["a page that says UTF-16 in single bytes", bytes(META("utf-16"), "é"), null, true, `${META("utf-16")}é`],
  ["a charset that nobody knows", bytes("é"), "klingon", false, "é"],
  ["bytes that are not of the charset", bytes("a", [0xff], "b"), "utf-8", false, "a\ufffdb"],
])("%s is read", (_, body, charset, isHtml, text) => {
  expect(decodeText(body, charset, isHtml)).toBe(text);
});

test.each<[string | null, Uint8Array, ReturnType<typeof mediaOf>]>([
  ['text/html; charset="UTF-8"', bytes("x"), { mimeType: "text/html", charset: "utf-8", kind: "html" }],
  ["Application/XHTML+XML", bytes("x"), { mimeType: "application/xhtml+xml", charset: null, kind: "html" }],
  ["application/json", bytes("{}"), { mimeType: "application/json", charset: null, kind: "text" }],
  [
    "application/problem+json; charset=x; a=b",
    bytes("{}"),
    { mimeType: "application/problem+json", charset: "x", kind: "text" },
  ],
  ["image/svg+xml", bytes("<svg/>"), { mimeType: "image/svg+xml", charset: null, kind: "text" }],
  ["image/png", bytes("x"), { mimeType: "image/png", charset: null, kind: "binary" }],
  ["application/pdf", bytes("%PDF"), { mimeType: "application/pdf", charset: null, kind: "binary" }],
  ["text/plain", bytes("a", [0], "b"), { mimeType: "text/plain", charset: null, kind: "binary" }],
  [
    "text/plain; charset=utf-16le",
    bytes([0x41, 0]),
    { mimeType: "text/plain", charset: "utf-16le", kind: "text" },
  ],
  [null, bytes("  <!DOCTYPE html><p>"), { mimeType: "text/html", charset: null, kind: "html" }],
  [null, bytes("<!-- a --><html>"), { mimeType: "text/html", charset: null, kind: "html" }],
  [null, bytes("words"), { mimeType: "text/plain", charset: null, kind: "text" }],
  [null, bytes([0x7f, 0, 1]), { mimeType: "application/octet-stream", charset: null, kind: "binary" }],
  ["application/octet-stream", bytes("words"), { mimeType: "text/plain", charset: null, kind: "text" }],
])("of %s it is told what it is", (type, body, media) => {
  expect(mediaOf(type === null ? [] : [["content-type", type]], body)).toEqual(media);
});
