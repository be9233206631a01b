import { defer } from "@capsem/base";
import { createPeer } from "@capsem/rpc";
import { expect, onTestFinished, test } from "vitest";
import { ScriptedServers, type Serve, said } from "../testing/scripted-servers.ts";
import { type Ears, requestUpstream } from "./upstream.ts";

function serverOf(serve: Serve) {
  const servers = new ScriptedServers();
  servers.servers.set("s", { serve });
  const peer = createPeer({ role: "host", duplex: servers.start() });
  onTestFinished(() => peer.close());
  const neighbour = { ready: peer, use: async () => peer };
  const client = { sampling: true, elicitation: true, roots: true };
  const request = { server: "s", method: "tools/call", params: "{}", client, timeout_ms: 60_000 };
  return (ears: Partial<Ears>, signal = new AbortController().signal) =>
    requestUpstream(
      neighbour,
      request,
      { notified: async () => undefined, asked: async () => "{}", ...ears },
      signal,
    );
}

test("an answer to what a server asked is not sent behind the end, whenever it comes", async () => {
  const ask = serverOf(async ({ ask }) => {
    void ask("roots/list", {});
    return said("done");
  });
  // A write behind the end would be a rejection that nobody handles, which fails this file.
  for (let turns = 0; turns < 40; turns += 1) {
    const asked = async (_: string, tell: (message: string) => void) => {
      for (let turn = 0; turn < turns; turn += 1) await null;
      tell("{}");
      return "{}";
    };
    expect((await ask({ asked })).kind).toBe("result");
  }
});

test("who asks a client hears when the request is over, with an answer or without one", async () => {
  for (const isCancelled of [false, true]) {
    const caller = new AbortController();
    const never = new Promise<never>(() => undefined);
    const ask = serverOf(async ({ ask }) => {
      void ask("roots/list", {});
      return isCancelled ? never : said("done");
    });
    const over = defer<void>();
    const asked: Ears["asked"] = async (_, _tell, signal) => {
      signal.addEventListener("abort", () => over.resolve(), { once: true });
      if (isCancelled) caller.abort(new Error("enough"));
      return never;
    };
    const answered = ask({ asked }, caller.signal);
    if (isCancelled) await expect(answered).rejects.toThrow("enough");
    else expect((await answered).kind).toBe("result");
    await over.promise;
  }
});
