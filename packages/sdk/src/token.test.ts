import { expect, test } from "vitest";
import { createTokens } from "./token.ts";

test("a token is asked for once, and again by the first of those that were refused", async () => {
  let asked = 0;
  const tokens = createTokens(() => {
    asked += 1;
    return `token${asked}`;
  });
  expect(asked).toBe(0);
  expect(await Promise.all([tokens.current(), tokens.current()])).toEqual(["token1", "token1"]);
  expect(await tokens.renew("token1")).toBe("token2");
  // A call that left with the old token is refused later.
  expect(await tokens.renew("token1")).toBe("token2");
  expect([await tokens.current(), asked]).toEqual(["token2", 2]);
});

test("a token that is still the same is no new one", async () => {
  expect(await createTokens("abc").renew("abc")).toBeNull();
  expect(await createTokens(() => "abc").renew("abc")).toBeNull();
});

test("a failed read is not remembered", async () => {
  let fails = true;
  const tokens = createTokens(() => {
    if (fails) throw new Error("no file");
    return "abc";
  });
  await expect(tokens.current()).rejects.toThrow("no file");
  fails = false;
  expect(await tokens.current()).toBe("abc");
});
