import { Failure } from "@capsem/base";
import { expect, onTestFinished, test, vi } from "vitest";
import { UPSTREAM_LIMITS } from "../limits.ts";
import { httpServer } from "../testing/http-server.ts";
import { loopbackHttp } from "../testing/loopback-http.ts";
import { declared } from "../testing/one-server.ts";
import { ByteBudget } from "./byte-budget.ts";
import { Endpoint } from "./endpoint.ts";
import { openSession } from "./open-session.ts";

test.each(["auto", "sse"] as const)(
  "a server that is silent until the opening's time is over ends it in the words of that (%s)",
  async (transport) => {
    const server = await httpServer(() => undefined);
    const http = loopbackHttp();
    onTestFinished(() => http.close());
    const budget = new ByteBudget(UPSTREAM_LIMITS.heldBytesMax);
    const told = { changed: () => undefined, updated: () => undefined, log: () => undefined };
    const endpoint = new Endpoint({ server: "one", url: server.url, http, budget });
    const limit = new AbortController();
    const parts = { server: declared(server.url, { transport }), endpoint, told };
    const opening = openSession(parts, null, limit.signal);
    await vi.waitFor(() => expect(server.requests).not.toEqual([]), 5_000);
    limit.abort(new Failure("timeout", "it took too long"));
    await expect(opening).rejects.toMatchObject({ kind: "timeout", message: "it took too long" });
  },
);
