/** For every test file: time for what must come, and nothing of it in the process that the next file has too. */
import { existsSync, readFileSync } from "node:fs";
import { afterAll, expect, vi } from "vitest";
import { WAIT_MS } from "./test-limits.ts";

const { waitFor } = vi;
// `expect.poll` has a setting for it.
vi.waitFor = (callback, options = WAIT_MS) => waitFor(callback, options);

const LIMITS_FILE = "/proc/self/limits";
const processState = () => ({
  cwd: process.cwd(),
  umask: process.umask(),
  env: { ...process.env },
  limits: existsSync(LIMITS_FILE) ? readFileSync(LIMITS_FILE, "utf8") : "",
});

const before = processState();
afterAll(() => {
  expect(processState(), "a test file leaves its process as it found it").toEqual(before);
});
