import { connect } from "node:net";
import { matchRoute, ROUTES } from "@capsem/api";
import { expect, test, vi } from "vitest";
import { fuzzedRequest, randomOf } from "./request.fuzz.ts";
import { useGateways } from "./testing/use-gateways.ts";

vi.setConfig({ testTimeout: 120_000 });

const { startWithUpstream } = useGateways();
const ROUNDS = 1_500;
const BATCH = 50;
const SEEDS = [1, Math.floor(Math.random() * 2 ** 31)];

const PATIENCE_MS = 30;

/** What came back. Our end is told after the first answer, or when there is none for a while: it cuts a request. */
function exchange(port: number, bytes: Buffer): Promise<string> {
  return new Promise((resolve) => {
    const socket = connect({ host: "127.0.0.1", port });
    let text = "";
    const timer = setTimeout(() => socket.end(), PATIENCE_MS);
    socket.on("data", (part) => {
      text += part.toString("latin1");
      socket.end();
    });
    socket.on("error", () => socket.destroy());
    socket.once("close", () => {
      clearTimeout(timer);
      resolve(text);
    });
    socket.write(bytes);
  });
}

test.each(SEEDS)("bytes that are nearly requests get an error object or nothing (seed %i)", async (seed) => {
  const rig = await startWithUpstream();
  const random = randomOf(seed);
  const scene = { host: `127.0.0.1:${rig.port}`, token: rig.token() };
  for (let round = 0; round < ROUNDS; round += BATCH) {
    const batch = Array.from({ length: BATCH }, () => fuzzedRequest(random, scene));
    const texts = await Promise.all(batch.map((bytes) => exchange(rig.port, bytes)));
    for (const [index, text] of texts.entries()) {
      const sent = JSON.stringify(batch[index]?.toString("latin1"));
      for (const part of text.split(/(?=HTTP\/1\.1 \d{3} )/).filter((one) => one !== "")) {
        const status = Number(/^HTTP\/1\.1 (\d{3}) /.exec(part)?.[1]);
        expect([100, 200, 204, 400, 401, 403, 404, 413, 429, 502], sent).toContain(status);
        // The answer to HEAD has a head alone.
        if (status >= 400 && !sent.includes("HEAD"))
          expect(part, sent).toMatch(/\{"error":\{"kind":"[a-z_]+"/);
      }
      expect(text, sent).not.toContain(scene.token);
    }
  }
  for (const { method, target, rawHeaders } of rig.upstream.calls) {
    const match = matchRoute(method, target.split("?")[0] ?? "");
    expect(match, target).not.toBeNull();
    expect(rawHeaders.join("\n")).not.toContain(scene.token);
    const isHealth = match !== null && ROUTES[match.name].path === "/health";
    expect(isHealth || rawHeaders.includes("gateway")).toBe(true);
  }
  expect(rig.upstream.calls.length).toBeGreaterThan(ROUNDS / 30);
  expect((await rig.client.get("/status")).status).toBe(200);
  expect(rig.log.filter(({ level }) => level === "error").map(({ detail }) => detail)).toEqual([]);
});
