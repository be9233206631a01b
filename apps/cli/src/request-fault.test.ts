import { Failure } from "@capsem/base";
import { expect, test } from "vitest";
import { textOfFailure } from "./error-text.ts";
import { parse } from "./parse.ts";
import { requestFault } from "./request-fault.ts";

function typed(argv: readonly string[]) {
  const parsed = parse(argv);
  if (parsed.kind !== "run") throw new Error("no command");
  return { name: parsed.command.name, args: parsed.args };
}

const HEAD = "Cannot read the request: ";
const ADD = ["mcp", "add", "Bad_", "https://a.test/mcp"];

const FAULTS: [string, string[], string, string][] = [
  ["a name", ADD, "path: id: takes a-z, 0-9", 'Cannot use "Bad_": it takes a-z, 0-9'],
  [
    "an address without a port",
    [...ADD, "--grant", "127.0.0.1:1", "--grant", "127.0.0.1"],
    "body: grants.1: takes HOST:PORT",
    'Cannot use --grant "127.0.0.1": it takes HOST:PORT',
  ],
  ["a word of its own name", ADD, "body: url: a text", 'Cannot use "https://a.test/mcp": a text'],
  [
    "two at once",
    [...ADD, "--grant", "x"],
    "body: url: at most 2048 characters; grants.0: takes HOST:PORT",
    'Cannot use "https://a.test/mcp": at most 2048 characters; Cannot use --grant "x": it takes HOST:PORT',
  ],
  [
    "a header, whose value nobody says again",
    [...ADD, "--header", "A_b=canary"],
    "body: headers.A_b: not of the right form",
    "Cannot use --header: not of the right form",
  ],
  [
    "a tool",
    ["mcp", "call", "tracker", "x".repeat(3)],
    "body: tool_id: at most 2 characters",
    'Cannot use "xxx": at most 2 characters',
  ],
  [
    "a span",
    ["mcp", "add", "a", "b", "--timeout-secs", "9"],
    "body: timeout_secs: at most 8",
    'Cannot use --timeout-secs "9": at most 8',
  ],
];
test.each(FAULTS)("%s that is not of its form is told by what was typed", (_, argv, fault, text) => {
  const failure = new Failure("invalid_input", `${HEAD}${fault}`);
  expect(requestFault(failure, typed(argv))).toBe(text);
  expect(textOfFailure(failure, new Map(), typed(argv))).toBe(text);
});

test.each<[string, string, string]>([
  ["what no word became", "invalid_input", `${HEAD}body: nothing.of.it: a text`],
  ["one of two that no word became", "invalid_input", `${HEAD}body: url: a text; nothing: a text`],
  ["no fault of a field", "invalid_input", `${HEAD}its body is not JSON in UTF-8`],
  ["another kind", "internal", `${HEAD}path: id: takes a-z`],
])("%s is told as it came", (_, kind, message) => {
  const failure = new Failure(kind, message);
  expect(requestFault(failure, typed(ADD))).toBeNull();
  expect(requestFault(failure, null)).toBeNull();
  expect(textOfFailure(failure, new Map(), typed(ADD))).toBe(message);
});
