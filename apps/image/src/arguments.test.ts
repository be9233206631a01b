import { expect, test } from "vitest";
import { parseArguments } from "./arguments.ts";

const PROGRAM = "/srv/capsem/dist/image.cjs";

test("the recipe lies beside the folder of the program unless it is named", () => {
  expect(parseArguments(["build", "--cache", "/c"], PROGRAM)).toEqual({
    kind: "build",
    cacheDir: "/c",
    recipeDir: "/srv/capsem/guest-image/recipe",
    agent: undefined,
    refresh: false,
    jsonProgress: false,
  });
  const words = [
    "build",
    "--cache=/c",
    "--recipe=/r",
    "--refresh",
    "--json-progress",
    "--agent=a",
    "--helper=h",
  ];
  expect(parseArguments(words, PROGRAM)).toMatchObject({
    recipeDir: "/r",
    agent: { guestBundlePath: "a", helperPath: "h" },
    refresh: true,
    jsonProgress: true,
  });
});

test("verify takes a digest", () => {
  expect(parseArguments(["verify", "--cache", "/c", "abc"], PROGRAM)).toEqual({
    kind: "verify",
    cacheDir: "/c",
    digest: "abc",
  });
});

test("help needs nothing else", () => {
  expect(parseArguments(["--help"], PROGRAM)).toEqual({ kind: "help" });
});

const refused: readonly (readonly string[])[] = [
  [],
  ["build"],
  ["--cache", "/c"],
  ["destroy", "--cache", "/c"],
  ["build", "more", "--cache", "/c"],
  ["verify", "--cache", "/c"],
  ["verify", "a", "b", "--cache", "/c"],
  ["build", "--cache", "/c", "--agent", "a"],
  ["build", "--cache", "/c", "--helper", "h"],
  ["build", "--cache", "/c", "--unknown"],
];

for (const words of refused) {
  test(`the arguments ${JSON.stringify(words)} are refused`, () => {
    expect(() => parseArguments(words, PROGRAM)).toThrow("Cannot read the arguments");
  });
}
