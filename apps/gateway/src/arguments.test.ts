import { expect, test } from "vitest";
import { PORT_DEFAULT, parseCommand } from "./arguments.ts";

test.each([
  [["serve"], { kind: "serve", home: "/h", port: PORT_DEFAULT, isUnconfined: false }],
  [["serve", "--port", "0"], { kind: "serve", home: "/h", port: 0, isUnconfined: false }],
  [
    ["serve", "--allow-unconfined", "--home", "/x"],
    { kind: "serve", home: "/x", port: PORT_DEFAULT, isUnconfined: true },
  ],
  [["start", "--port", "1"], { kind: "start", home: "/h", port: 1, isUnconfined: false }],
  [["token", "ensure"], { kind: "token", home: "/h", action: "ensure" }],
  [["token", "rotate", "--home", "/x"], { kind: "token", home: "/x", action: "rotate" }],
])("%j is understood", (argv, command) => {
  expect(parseCommand(argv, "/h")).toEqual(command);
});

test.each([
  [[]],
  [["serve", "more"]],
  [["serve", "--port", "65536"]],
  [["serve", "--port", "-1"]],
  [["serve", "--port", "1e3"]],
  [["serve", "--port"]],
  [["serve", "--token", "x"]],
  [["token"]],
  [["token", "show"]],
  [["token", "rotate", "--port", "1"]],
])("%j is refused", (argv) => {
  expect(() => parseCommand(argv, "/h")).toThrow(/^Cannot read the command line/);
});
