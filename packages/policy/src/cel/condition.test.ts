import { expect, test } from "vitest";
import type { FaultCode } from "../fault.ts";
import { compileCondition, isCondition } from "./condition.ts";

test.each<[string, FaultCode, number, string]>([
  ['http.hst == "x"', "unknown_field", 0, 'did you mean "http.host"'],
  ['true && htp.host == "x"', "unknown_field", 8, 'did you mean "http"'],
  ['http == "x"', "unknown_field", 0, "only the name above"],
  ["http.host", "bad_type", 0, "gives string"],
  ["http.host.name", "unknown_field", 0, "nothing below"],
  ["has(http.hst)", "unknown_field", 4, "only the name"],
  ["has(http)", "bad_expression", 0, "has takes a field"],
  ['http.port == "x"', "bad_type", 0, "int == string"],
  ['http.host + 1 == "x"', "bad_type", 0, "string + int"],
  ['http.host.upper() == "X"', "unknown_function", 0, "no function"],
  ['matches(http.host, "x")', "unknown_function", 0, "text.matches"],
  ['timestamp("2020-01-01T00:00:00Z") == timestamp("x")', "unknown_function", 0, "no function"],
  ["cel.bind(x, 1, x == 1)", "unknown_function", 0, "no function"],
  ["1u == 1u", "bad_literal", 0, "texts, numbers"],
  ['b"x" == b"x"', "bad_literal", 0, "texts, numbers"],
  ['{"a": 1} == {"a": 1}', "bad_expression", 0, "form of CEL"],
  ['event.type == "http.reqest"', "bad_literal", 14, 'did you mean "http.request"'],
  ['label.integrity in ["trusted", "trustd"]', "bad_literal", 31, "one of trusted"],
  ['http.host == "Example.com"', "bad_literal", 13, 'written "example.com"'],
  ['"127.1" == network.source.ip', "bad_literal", 0, 'written "127.0.0.1"'],
  ['http.method == "get"', "bad_literal", 15, 'written "GET"'],
  ['file.import.path == "/a/../b"', "bad_literal", 20, 'written "/b"'],
  ['http.host == "a b"', "bad_literal", 13, "no host"],
  ['host_in(http.host, "Example.com")', "bad_literal", 19, 'write it as "example.com"'],
  ["host_in(http.host, http.path)", "bad_literal", 19, "constant"],
  ['cidr(http.host, "10.0.0.1/8")', "bad_literal", 16, "no network"],
  ['tainted(label, "public")', "bad_literal", 15, "internal, secret, user, untrusted"],
  ['tainted(vm.name, "secret")', "bad_expression", 0, "tainted(label"],
  ["http.body.matches(http.path)", "bad_literal", 18, "constant"],
  ['http.body.matches("(")', "bad_pattern", 18, "missing closing"],
  ['http.body.matches("(?=a)")', "bad_pattern", 18, "Perl"],
  ['http.body.matches("(a)\\\\1")', "bad_pattern", 18, "escape"],
  ['http.body.matches("(a{12}){12}")', "bad_pattern", 18, "instructions"],
  [`http.body.matches("${"a".repeat(1_025)}")`, "bad_pattern", 18, "longer than"],
  ['vm.labels.exists(vm, vm == "x")', "bad_expression", 17, "already names"],
  ["vm.labels.exists(1, true)", "bad_expression", 17, ""],
  ["vm.labels.all(a, vm.labels.all(b, vm.labels.all(c, a == c)))", "too_costly", 34, "loops inside loops"],
  ['vm.labels.all(a, vm.labels.all(b, a.matches("x.*y")))', "too_costly", 0, "steps"],
  ['vm.labels.map(a, http.body).exists(b, b.matches("x.*y"))', "too_costly", 0, "steps"],
  [`${"(".repeat(40)}true${")".repeat(40)}`, "too_large", 32, "maxDepth"],
  [`${"!".repeat(3_000)}true`, "too_large", 2_000, ""],
  [`${"true||".repeat(600)}true`, "too_large", 0, "maxAstNodes"],
  [" ".repeat(4_097), "too_large", 0, "longer than"],
  ["", "bad_expression", 0, "EOF"],
  ["http.port ==", "bad_expression", 12, "EOF"],
  ['http.host == "a', "bad_expression", 13, ""],
  ["💥 == 1", "bad_expression", 0, "Unexpected character: ?"],
  ["constructor == 1", "unknown_field", 0, "no root"],
  ["http.constructor == 1", "unknown_field", 0, "does not exist"],
  ["__proto__ == 1", "bad_expression", 0, ""],
  ["vm.labels.exists(constructor, constructor.length == 1)", "bad_type", 42, ""],
])("%s is refused as %s at %i", (source, code, offset, message) => {
  const compiled = compileCondition(source);
  if (isCondition(compiled)) throw new Error(`${source} compiles`);
  expect(compiled).toMatchObject({ code, offset });
  expect(compiled.message).toContain(message);
});

test.each([
  "true",
  "vm.labels.exists(a, vm.labels.exists(b, a == b + b))",
  'process.audit.argv.exists(a, a.matches("^--(token|key)="))',
  'mcp.response.content.matches("(?i)(password|secret|token)\\\\s*[:=]")',
  `${"http.port == 1 || ".repeat(100)}false`,
  'host_in(http.host, ["example.com", "example.org"]) && !cidr(http.host, ["10.0.0.0/8", "fc00::/7"])',
])("%s compiles within its bounds", (source) => {
  const compiled = compileCondition(source);
  expect(isCondition(compiled) ? "ok" : compiled.message).toBe("ok");
});
