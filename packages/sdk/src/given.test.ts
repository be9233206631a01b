import { expect, test } from "vitest";
import { createClient } from "./client.ts";
import { createClient as createNodeClientOf } from "./node.ts";

const url = "http://127.0.0.1:1";
/** As a program without types calls it. */
const root = createClient as (given?: unknown) => unknown;
const node = createNodeClientOf as (given?: unknown) => unknown;

test.each([
  [
    undefined,
    "an object with url and token is needed",
    "an object with url and token or tokenFile is needed",
  ],
  [url, "an object with url and token is needed", "an object with url and token or tokenFile is needed"],
  [{ token: "t" }, "url is missing", "url is missing"],
  [{ url: "", token: "t" }, "url is missing", "url is missing"],
  [{ url }, "token is missing", "token or tokenFile is missing"],
  [{ url, token: "" }, "token is missing", "token or tokenFile is missing"],
  [{ url, tokenFile: "/t" }, 'a tokenFile is read by "@capsem/sdk/node" alone', null],
  [{ url, token: "t" }, null, null],
])("a client of %j says what it lacks when it is made", (given, ofRoot, ofNode) => {
  for (const [make, why] of [
    [root, ofRoot],
    [node, ofNode],
  ] as const) {
    if (why === null) expect(() => make(given)).not.toThrow();
    else expect(() => make(given)).toThrow(`Cannot create client: ${why}`);
  }
});
