import { expect, test } from "vitest";
import { explain, runStep, toolEnv } from "./build-context.ts";
import { imagePowers } from "./powers-node.ts";

const reasons: readonly (readonly [string, string])[] = [
  ["dpkg: error: failed to write: No space left on device", "image_no_space"],
  ["npm error code ENOSPC", "image_no_space"],
  ["Err:1 http://m.test stable InRelease\n  Temporary failure resolving 'm.test'", "image_no_network"],
  ["W: Failed\nE: Failed to fetch http://m.test/x  404", "image_no_network"],
  ["npm error code ENOTFOUND", "image_no_network"],
  ["npm error network request to https://r.test failed, reason: connect ECONNREFUSED", "image_no_network"],
  ["E: Unable to locate package nosuch", "image_build_failed"],
  ["", "image_build_failed"],
];

for (const [stderr, kind] of reasons) {
  test(`the last words ${JSON.stringify(stderr)} mean ${kind}`, () => {
    expect(explain(stderr).kind).toBe(kind);
  });
}

test("the reason is the first error line, not the notices around it", () => {
  const stderr =
    "I: downloading\nW: slow\ndpkg: warning: odd\nE: Unable to locate package nosuch\nE: mmdebstrap failed to run\n";
  expect(explain(stderr).reason).toBe("E: Unable to locate package nosuch");
});

test("Debian's programs see how to reach the network and nothing else of our environment", () => {
  const env = toolEnv({
    https_proxy: "http://p.test",
    HOME: "/home/ann",
    API_TOKEN: "secret",
    PATH: "/evil",
    LD_PRELOAD: "/evil.so",
    NOTHING: undefined,
  });
  expect(env).toMatchObject({ https_proxy: "http://p.test", HOME: "/nonexistent", LC_ALL: "C.UTF-8" });
  expect(env.PATH).not.toContain("evil");
  expect(Object.keys(env)).not.toContain("API_TOKEN");
  expect(Object.keys(env)).not.toContain("LD_PRELOAD");
});

test("a step that fails is a failure that says what could not be done", async () => {
  const context = { powers: imagePowers(), signal: new AbortController().signal };
  const step = { program: "sh", args: ["-c", "echo 'sh: broken' >&2; exit 4"], timeoutMs: 20_000 };
  await expect(runStep(context, { ...step, purpose: "unpack the kernel" })).rejects.toMatchObject({
    kind: "image_build_failed",
    message: "Cannot unpack the kernel: sh: broken",
    detail: "sh: broken\n",
  });
});
