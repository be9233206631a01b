import { expect, test } from "vitest";
import { isLoopbackHost } from "./loopback-host.ts";

test.each([
  ["http://127.0.0.1:1", true],
  ["http://127.1", true],
  ["http://127.255.0.9", true],
  ["http://2130706433", true],
  ["http://LOCALHOST:1", true],
  ["http://[::1]:1", true],
  ["http://[0:0:0:0:0:0:0:1]", true],
  ["http://127.evil.example", false],
  ["http://127.0.0.1.evil.example", false],
  ["http://localhost.evil.example", false],
  ["http://localhost.", false],
  ["http://128.0.0.1", false],
  ["http://0.0.0.0", false],
  ["http://[::]", false],
  ["http://[::ffff:127.0.0.1]", false],
  ["http://[::2]", false],
])("%s is of this machine alone: %s", (url, isLocal) => {
  expect(isLoopbackHost(new URL(url).hostname)).toBe(isLocal);
});
