import { readdirSync } from "node:fs";
import { Failure } from "@capsem/base";
import { native } from "@capsem/native";
import { type HttpRequest, judgeUrl } from "@capsem/net";
import { afterAll, expect, onTestFinished, test, vi } from "vitest";
import { failureOf, readAll, until } from "./testing/dialling.ts";
import { type Asked, buildEgress, type EgressOptions, startEgress } from "./testing/egress-process.ts";
import { httpServer, newAuthority, tlsServer } from "./testing/servers.ts";

vi.setConfig({ testTimeout: 60_000 });

const usable = process.platform === "linux" && native().landlockAbi() > 0;
if (!usable) console.log("skipped: egress in its own process, because this kernel has no Landlock");
const confined = test.skipIf(!usable);
const { bundle, remove } = await buildEgress();
afterAll(remove);

let leases = 0;
const admitted = (more: object = {}) => {
  leases += 1;
  return {
    ...{ lease: `l${leases}`, lease_ms: 60_000, addresses: ["127.0.0.1"], headers: [], secrets: [] },
    ...{ event_id: "0123456789ab", ...more },
  };
};

async function readyEgress(options: Partial<EgressOptions> = {}) {
  const egress = startEgress({ bundle, admit: async () => admitted(), ...options });
  onTestFinished(async () => {
    egress.child.kill("SIGKILL");
    await egress.exited;
  });
  return { egress, said: await egress.ready };
}

const get = (url: string, more: Partial<HttpRequest> = {}): HttpRequest => ({
  ...{ server: "docs", url, method: "GET", headers: [], timeoutMs: 10_000, ...more },
});

confined(
  "a confined egress dials for its clients, keeps their connections, and ends with its service",
  async () => {
    const server = await httpServer((request, response) => response.end(`${request.headers["x-key"]}`));
    const asked: Asked[] = [];
    const { egress, said } = await readyEgress({
      admit: async (params) => {
        asked.push(params);
        return admitted({ headers: [["x-key", `of ${params.client}`]] });
      },
    });
    expect(said).toEqual({ unconfined: [], notes: [] });
    const one = await egress.grant("aggregator:host");
    const two = await egress.grant("aggregator:vm_aaaaaaaaaaaaaaaa");
    for (let n = 0; n < 5; n += 1) {
      expect(await readAll((await one.client.fetch(get(server.url))).body)).toBe("of aggregator:host");
      expect(await readAll((await two.client.fetch(get(server.url))).body)).toBe(
        "of aggregator:vm_aaaaaaaaaaaaaaaa",
      );
    }
    expect([asked.length, server.connections]).toEqual([2, 2]);
    expect(await egress.end()).toEqual({ code: 0, signal: null });
    expect(egress.log()).toContain('"egress ended"');
    expect(server.sockets.size).toBe(0);
  },
);

confined("TLS works behind the seal, and trusts nobody whom the machine does not trust", async () => {
  const server = await tlsServer(newAuthority().issue("IP:127.0.0.1"), (_, response) => response.end("x"));
  const { egress } = await readyEgress();
  const { client } = await egress.grant("aggregator:host");
  const failure = await failureOf(client.fetch(get(server.url)));
  expect([failure.kind, failure.message]).toEqual(["tls_failed", expect.stringContaining("certificate")]);
});

confined("without the gate this machine is dialled; with it the refusal arrives with its rule", async () => {
  const server = await httpServer((_, response) => response.end("inside"));
  const open = await readyEgress();
  const free = await open.egress.grant("builtin:host");
  expect(await readAll((await free.client.fetch(get(server.url))).body)).toBe("inside");
  const gated = await readyEgress({
    admit: async ({ url }) => {
      const judgement = judgeUrl(url);
      if (judgement.kind === "ok") return admitted({ addresses: [judgement.target.host] });
      throw new Failure("policy", `Cannot fetch: ${judgement.reason}`, {
        facts: { rule_id: "egress.address" },
      });
    },
  });
  const { client } = await gated.egress.grant("builtin:host");
  const failure = await failureOf(client.fetch(get(server.url)));
  expect(failure).toMatchObject({ kind: "policy", facts: { rule_id: "egress.address" } });
  expect(server.connections).toBe(1);
});

confined("a name that nobody resolved is not resolved here", async () => {
  const { egress } = await readyEgress({ admit: async () => admitted({ addresses: [] }) });
  const { client } = await egress.grant("aggregator:host");
  expect((await failureOf(client.fetch(get("http://localhost:1/")))).kind).toBe("dns_failed");
});

confined(
  "a client of the next generation takes the place of the last, and an older one does not",
  async () => {
    const server = await httpServer((request, response) => {
      if (request.url === "/stream") response.write("x");
      else response.end("x");
    });
    const { egress } = await readyEgress();
    const first = await egress.grant("aggregator:host", 1);
    const { body } = await first.client.fetch(get(`${server.url}/stream`));
    await body.read();
    const second = await egress.grant("aggregator:host", 2);
    expect(await readAll((await second.client.fetch(get(server.url))).body)).toBe("x");
    expect((await failureOf(readAll(body))).kind).toBe("egress_lost");
    const late = await egress.grant("aggregator:host", 1);
    expect((await failureOf(late.client.fetch(get(server.url)))).kind).toBe("egress_lost");
    await until(() => egress.ends.length === 1, "the first one's lease ended");
    expect(egress.ends[0]).toMatchObject({ error: "revoked", bytes_received: 1 });
  },
);

confined("what the service takes back ends in mid-flight", async () => {
  const server = await httpServer((_, response) => response.write("x"));
  const { egress } = await readyEgress();
  const { client } = await egress.grant("aggregator:host");
  const { body } = await client.fetch(get(server.url, { timeoutMs: null }));
  await body.read();
  await egress.service.call(
    "egress.revoke",
    { client: "aggregator:other", server: null },
    { timeoutMs: 5_000 },
  );
  await egress.service.call("egress.revoke", { client: null, server: "other" }, { timeoutMs: 5_000 });
  expect(server.sockets.size).toBe(1);
  await egress.service.call(
    "egress.revoke",
    { client: "aggregator:host", server: "docs" },
    { timeoutMs: 5_000 },
  );
  expect((await failureOf(readAll(body))).kind).toBe("upstream_failed");
  await until(() => server.sockets.size === 0 && egress.ends.length === 1, "it is closed, and told");
});

confined("a thousand abandoned requests leave nothing: connections, descriptors, memory", async () => {
  const server = await httpServer((request, response) => {
    if (request.url === "/stream") response.write("x".repeat(1_000));
  });
  const { egress } = await readyEgress();
  const { client } = await egress.grant("aggregator:host");
  const descriptors = () => readdirSync(`/proc/${egress.pid}/fd`).length;
  const abandon = async (n: number) => {
    const controller = new AbortController();
    const url = `${server.url}/${n % 2 === 0 ? "never" : "stream"}`;
    const fetched = client.fetch(get(url, { signal: controller.signal }));
    if (n % 2 === 0) setTimeout(() => controller.abort(), 5);
    await fetched.then(
      ({ body }) => body.cancel(),
      () => undefined,
    );
  };
  const before = descriptors();
  for (let round = 0; round < 20; round += 1) {
    await Promise.all(Array.from({ length: 50 }, (_, n) => abandon(n)));
  }
  await until(() => server.sockets.size === 0, "all connections closed");
  await until(() => descriptors() <= before + 2, "all descriptors closed");
});

confined("100 MB stream through it with flat memory, to a reader that is slow at first", async () => {
  const server = await httpServer((_, response) => {
    let left = 1_600;
    const block = Buffer.alloc(65_536, 7);
    const more = () => {
      for (; left > 0; left -= 1) {
        if (!response.write(block)) {
          left -= 1;
          return response.once("drain", more);
        }
      }
      return response.end();
    };
    more();
  });
  const { egress } = await readyEgress();
  const { client } = await egress.grant("aggregator:host");
  await readAll((await client.fetch(get(server.url))).body);
  const { readFileSync } = await import("node:fs");
  const rss = () =>
    Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${egress.pid}/status`, "utf8"))?.[1] ?? 0) / 1024;
  const before = rss();
  const { body } = await client.fetch(get(server.url));
  await body.read();
  await new Promise((done) => setTimeout(done, 200));
  let bytes = 0;
  let peak = rss();
  for await (const chunk of body) {
    bytes += chunk.length;
    if (bytes % (4 * 1024 * 1024) < chunk.length) peak = Math.max(peak, rss());
  }
  expect(bytes).toBeGreaterThan(1_590 * 65_536);
  expect(peak - before).toBeLessThan(48);
});

test("without its confinement it does not start, unless that is allowed", async () => {
  const plan = {
    kind: "egress",
    scope: "all",
    vm: null,
    descriptors: { service: 3, grants: 4 },
    allow_unconfined: false,
  };
  const refused = startEgress({
    ...{ bundle, admit: async () => admitted(), unconfined: true },
    input: `${JSON.stringify(plan)}\n`,
  });
  expect(await refused.exited).toMatchObject({ code: 1 });
  expect(refused.log()).toContain("Cannot confine the egress");
});

test.each([
  ["nothing", ""],
  ["no JSON", "x\n"],
  [
    "another worker's",
    `${JSON.stringify({ kind: "proxy", scope: "host", vm: null, descriptors: { service: 3, grants: 4 }, allow_unconfined: true })}\n`,
  ],
  [
    "two of its descriptors are one",
    `${JSON.stringify({ kind: "egress", scope: "all", vm: null, descriptors: { service: 3, grants: 3 }, allow_unconfined: true })}\n`,
  ],
])("a plan that is %s is refused", async (_, input) => {
  const egress = startEgress({ bundle, admit: async () => admitted(), unconfined: true, input });
  expect(await egress.exited).toMatchObject({ code: 1 });
  expect(egress.log()).toContain("Cannot read the plan of egress");
});
