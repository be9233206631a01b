/** How long a test waits for what must come, as `expect.poll` does by its setting: a busy machine takes its time. */
import { vi } from "vitest";
import { WAIT_MS } from "./test-limits.mjs";

const { waitFor } = vi;
vi.waitFor = (callback, options = WAIT_MS) => waitFor(callback, options);
