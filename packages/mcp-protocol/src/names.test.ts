import { expect, test } from "vitest";
import { isListable, joinUri, listedName, listedNames, splitName, splitUri } from "./names.ts";

test("a name is split at the first separator", () => {
  expect(splitName("everything__echo")).toEqual({ server: "everything", name: "echo" });
  expect(splitName("a__b__c")).toEqual({ server: "a", name: "b__c" });
  expect(splitName("a___b")).toEqual({ server: "a", name: "_b" });
  for (const joined of ["", "__", "__a", "a__", "a_b", "echo"]) expect(splitName(joined)).toBeNull();
});

test("a name that fits is listed as it is", () => {
  expect(listedName("git", "status")).toBe("git__status");
  expect(listedName("s", "a.b/c-d_E9")).toBe("s__a.b/c-d_E9");
  expect(listedName("s", "x".repeat(61))).toBe(`s__${"x".repeat(61)}`);
});

test("a name that does not fit is shortened the same way at all times", () => {
  // Pinned: a client that stored it must find it again.
  expect(listedName("s", "x".repeat(62))).toBe(`s__${"x".repeat(43)}-x382c910fefafce98`);
  for (const name of ["x".repeat(300), "with space", "ümlaut", "😀", "a\u0000b", "tab\t", "a:b"]) {
    const listed = listedName("a-server-with-a-name-of-32-chars", name);
    expect(isListable(listed), listed).toBe(true);
    expect(listed.startsWith("a-server-with-a-name-of-32-chars__")).toBe(true);
    expect(listedName("a-server-with-a-name-of-32-chars", name)).toBe(listed);
  }
});

test("no name can be made to be another's", () => {
  const shortened = listedName("s", "two words");
  const forged = shortened.slice("s__".length);
  expect(listedName("s", forged)).not.toBe(shortened);
  expect(listedName("s", "a b")).not.toBe(listedName("s", "a_b"));
  expect(listedName("s", "a b")).not.toBe(listedName("s", "a\tb"));
  expect(listedName("s", `${"x".repeat(100)}1`)).not.toBe(listedName("s", `${"x".repeat(100)}2`));
});

test("a list has every tool under a name of its own", () => {
  const tools = ["echo", "a b", "a_b", "a\tb", "x".repeat(90), "x".repeat(91), "echo"].flatMap((name) => [
    { server: "one", name },
    { server: "two", name },
  ]);
  const listed = listedNames(tools);
  expect(listed.size).toBe(12);
  for (const [name, tool] of listed) expect(listedName(tool.server, tool.name)).toBe(name);
});

test("a resource keeps its own scheme behind ours", () => {
  for (const uri of ["test://static-text", "file:///a/b?c=d#e", "demo://r/{id}", "capsem://x/y", "urn:a:b"]) {
    const joined = joinUri("everything", uri);
    expect(joined).toBe(`capsem://everything/${uri}`);
    expect(splitUri(joined)).toEqual({ server: "everything", uri });
    expect(new URL(joined).protocol).toBe("capsem:");
  }
  for (const uri of ["test://x", "capsem://", "capsem:///x", "capsem://s", "capsem://s/", "CAPSEM://s/x"]) {
    expect(splitUri(uri), uri).toBeNull();
  }
});
