import { expect, test } from "vitest";
import { hostPatterns } from "./host-pattern.ts";

test.each([
  { given: ["api.example.com"], bound: ["api.example.com"] },
  { given: ["API.Example.COM."], bound: ["api.example.com"] },
  { given: ["*.Example.com"], bound: ["*.example.com"] },
  { given: ["b.com", "a.com", "B.com"], bound: ["a.com", "b.com"] },
  { given: ["bücher.example"], bound: ["xn--bcher-kva.example"] },
  { given: ["127.1"], bound: ["127.0.0.1"] },
  { given: ["[::1]"], bound: ["::1"] },
  { given: ["::FFFF:10.0.0.1"], bound: ["10.0.0.1"] },
  { given: ["localhost", "_dmarc.example.com"], bound: ["_dmarc.example.com", "localhost"] },
  { given: [], bound: [] },
])("$given is bound to $bound", ({ given, bound }) => {
  expect(hostPatterns(given)).toEqual(bound);
});

test.each([
  { host: "api.example.com:443", why: "a port is no part of a host" },
  { host: "[::1]:443", why: "a port is no part of a host" },
  { host: "api.example.com:", why: "a port is no part of a host" },
  { host: "*.example.com:80", why: "a port is no part of a host" },
  { host: "https://api.example.com", why: "it is no host" },
  { host: "api.example.com/v1", why: "it is no host" },
  { host: "user@example.com", why: "it is no host" },
  { host: "", why: "it is no host" },
  { host: ".", why: "it is no host" },
  { host: "*", why: "it is no host" },
  { host: "*.", why: "it is no host" },
  { host: "*.com", why: "a domain with all below it has at least two parts" },
  { host: "*.*.example.com", why: "it is no host" },
  { host: "a.*.example.com", why: "it is no host" },
  { host: "*.10.0.0.1", why: "nothing is below an address" },
  { host: "-a.example.com", why: "it is no host" },
  { host: "a..example.com", why: "it is no host" },
  { host: "a b.example.com", why: "it is no host" },
  { host: `${"a".repeat(64)}.example.com`, why: "it is no host" },
])("$host is refused", ({ host, why }) => {
  expect(() => hostPatterns([host])).toThrow(
    expect.objectContaining({ kind: "invalid_input", message: expect.stringContaining(why) }),
  );
});
