import { native } from "@capsem/native";
import type { HttpRequest } from "@capsem/net";
import { afterAll, expect, onTestFinished, test, vi } from "vitest";
import { readAll, until } from "../../../egress/src/testing/dialling.ts";
import { buildEgress, startEgress } from "../../../egress/src/testing/egress-process.ts";
import { httpServer } from "../../../egress/src/testing/servers.ts";
import { ruleOn } from "../boundary/testing/fake-parts.ts";
import { admissionRig, failureOf, settings, VM } from "./testing/admission-rig.ts";

vi.setConfig({ testTimeout: 60_000 });

const usable = process.platform === "linux" && native().landlockAbi() > 0;
if (!usable)
  console.log("skipped: a confined egress behind the service's admission: this kernel has no Landlock");
const confined = test.skipIf(!usable);
const { bundle, remove } = await buildEgress();
afterAll(remove);

/** The admission, and a real egress that asks it. */
async function whole(options: Parameters<typeof admissionRig>[0] = {}) {
  const rig = await admissionRig(options);
  const egress = startEgress({ bundle, handlers: (peer) => rig.admission.handlers(peer) });
  onTestFinished(async () => {
    egress.child.kill("SIGKILL");
    await egress.exited;
  });
  expect(await egress.ready).toEqual({ unconfined: [], notes: [] });
  return { ...rig, egress };
}

const get = (url: string, more: Partial<HttpRequest> = {}): HttpRequest => ({
  ...{ server: "docs", url, method: "GET", headers: [], timeoutMs: 10_000, ...more },
});

confined("a declared server of this machine: a secret goes to it, and comes back to nobody", async () => {
  const secret = "sk-canary-7f3a9b2c";
  const seen: string[] = [];
  const server = await httpServer((request, response) => {
    seen.push(String(request.headers.authorization));
    response.setHeader("x-echo", String(request.headers.authorization));
    response.end(`you said ${request.headers.authorization}`);
  });
  const { egress, credentials, context, policy, ledger, log, admission, rows } = await whole();
  const { ref } = await credentials.inject({ name: "key", secret, hosts: ["127.0.0.1"] }, context);
  const words = `url = "${server.url}/mcp"\ngrants = ["127.0.0.1:${server.port}"]`;
  policy.rules(settings({ docs: `${words}\nheaders = { Authorization = "Bearer ${ref}" }` }));
  const { client } = await egress.grant(`aggregator:${VM}`);
  const answers: unknown[] = [];
  for (let n = 0; n < 3; n += 1) {
    const { headers, body } = await client.fetch(
      get(`${server.url}/mcp`, { headers: [["authorization", "forged"]] }),
    );
    answers.push(headers, await readAll(body));
  }
  expect(seen).toEqual(Array(3).fill(`Bearer ${secret}`));
  expect([server.connections, admission.openCount]).toEqual([1, 1]);
  // Another origin of the same machine is none of its business.
  const other = await httpServer((_, response) => response.end("other"));
  expect(await failureOf(client.fetch(get(other.url)))).toMatchObject({
    facts: { rule_id: "egress.address" },
  });
  expect(other.connections).toBe(0);
  await credentials.delete(ref, context);
  await admission.credentialForgotten(ref);
  await until(() => rows(VM).some(({ error }) => error === "revoked"), "its lease ended");
  expect((await failureOf(client.fetch(get(`${server.url}/mcp`)))).facts).toEqual({
    rule_id: "egress.credential",
  });
  const everything = JSON.stringify([answers, ledger.text, log, egress.log()]);
  expect(everything).toContain("you said");
  expect(everything).not.toContain("canary");
});

confined("a server's key does not come back in another writing, whole or in pieces", async () => {
  const secret = 'sk/canary+7f3a"9b2c';
  const writings = (said: string): string[] => [
    Buffer.from(said).toString("base64"),
    Buffer.from(said).toString("base64url"),
    Buffer.from(`${said} and more`).toString("hex"),
    Buffer.from(said).toString("hex").toUpperCase(),
    encodeURIComponent(said),
    new URLSearchParams({ said }).toString(),
    JSON.stringify({ said }),
    JSON.stringify(JSON.stringify({ said })),
  ];
  const server = await httpServer(async (request, response) => {
    const said = String(request.headers.authorization);
    response.setHeader("x-echo", writings(said));
    // One write a piece of five bytes: each writing is cut somewhere.
    for (const piece of writings(said)
      .join("\n")
      .match(/[\s\S]{1,5}/g) ?? []) {
      response.write(piece);
      await new Promise((resolve) => setImmediate(resolve));
    }
    response.end();
  });
  const { egress, credentials, context, policy } = await whole();
  const { ref } = await credentials.inject({ name: "key", secret, hosts: ["127.0.0.1"] }, context);
  const words = `url = "${server.url}/mcp"\ngrants = ["127.0.0.1:${server.port}"]`;
  const declared = (header: string) => `${words}\nheaders = { Authorization = ${JSON.stringify(header)} }`;
  // The same in clear words is nobody's secret, and comes back.
  policy.rules(settings({ docs: declared(`Bearer ${ref}`), open: declared(`Token ${secret}`) }));
  const { client } = await egress.grant(`aggregator:${VM}`);
  const answered = async (name: string) => {
    const { headers, body } = await client.fetch(get(`${server.url}/mcp`, { server: name }));
    return `${JSON.stringify(headers)}${await readAll(body)}`;
  };
  const [open, shown] = [await answered("open"), await answered("docs")];
  const [core, hex] = ["canary+7f3a", Buffer.from("canary").toString("hex")];
  for (const text of [core, encodeURIComponent(core), hex, hex.toUpperCase()]) {
    expect([text, open.includes(text), shown.includes(text)]).toEqual([text, true, false]);
  }
  for (const [at, writing] of writings(`Token ${secret}`).entries()) {
    expect([at, open.includes(writing)]).toEqual([at, true]);
    const rest = writings(`Bearer ${secret}`)[at] ?? "";
    expect([at, shown.includes(rest)]).toEqual([at, false]);
  }
  const decoded = shown.split("\n").map((line) => Buffer.from(line, "base64").toString("latin1"));
  expect(decoded.join(" ")).not.toContain("canary");
});

confined("a tool's request is held for a person, redirected nowhere, and its row has its end", async () => {
  const server = await httpServer((_, response) => {
    response.writeHead(302, { location: "http://169.254.169.254/" });
    response.end("go");
  });
  const { egress, policy, asks, rows } = await whole({ builtinGrants: [`127.0.0.1:${server.port}`] });
  policy.rules(ruleOn("http.request", "ask"));
  const { client } = await egress.grant(`builtin:${VM}`);
  const fetched = client.fetch(get(server.url, { server: null }));
  await until(() => asks.held.length === 1, "it is held");
  expect(server.connections).toBe(0);
  asks.held[0]?.resolve("approved");
  const { status, headers, body } = await fetched;
  expect([status, await readAll(body)]).toEqual([302, "go"]);
  const [, location = ""] = headers.find(([name]) => name === "location") ?? [];
  expect(await failureOf(client.fetch(get(location, { server: null })))).toMatchObject({
    ...{ kind: "policy", facts: { rule_id: "egress.address" } },
  });
  await until(() => rows(VM).length === 2, "both rows are there");
  expect(
    rows(VM)
      .map(({ outcome, status: said, host }) => [outcome, said, host])
      .sort(),
  ).toEqual([
    ["blocked", null, "169.254.169.254"],
    ["done", 302, "127.0.0.1"],
  ]);
});

confined("a name that turns to this machine is dialled without the gate, and not with it", async () => {
  const server = await httpServer((_, response) => response.end("inside"));
  const url = `http://docs.example.com:${server.port}/mcp`;
  const open = startEgress({
    bundle,
    admit: async () => ({
      ...{ lease: "l", lease_ms: 60_000, addresses: ["127.0.0.1"], headers: [], secrets: [] },
      event_id: "0123456789ab",
    }),
  });
  onTestFinished(() => void open.child.kill("SIGKILL"));
  const free = await open.grant("aggregator:host");
  expect(await readAll((await free.client.fetch(get(url))).body)).toBe("inside");
  const { egress, policy, names } = await whole();
  policy.rules(settings({ docs: `url = "${url}"` }));
  const { client } = await egress.grant("aggregator:host");
  for (const answer of [["127.0.0.1"], ["93.184.215.14", "127.0.0.1"], ["::ffff:127.0.0.1"]]) {
    names.set("docs.example.com", answer);
    expect((await failureOf(client.fetch(get(url)))).kind).toBe("policy");
    await new Promise((done) => setTimeout(done, 300));
  }
  expect(server.connections).toBe(1);
});

confined("the death of egress is an end of each row, and of each request", async () => {
  const server = await httpServer((_, response) => response.write("x"));
  const { egress, policy, admission, rows } = await whole();
  policy.rules(settings({ docs: `url = "${server.url}/"\ngrants = ["127.0.0.1:${server.port}"]` }));
  const { client } = await egress.grant("aggregator:host");
  const { body } = await client.fetch(get(server.url));
  await body.read();
  egress.child.kill("SIGKILL");
  const startedMs = performance.now();
  expect((await failureOf(readAll(body))).kind).toBe("egress_lost");
  expect((await failureOf(client.fetch(get(server.url)))).kind).toBe("egress_lost");
  expect(performance.now() - startedMs).toBeLessThan(1_000);
  await egress.service.ended;
  admission.lost();
  expect(rows("host")).toMatchObject([{ kind: "connection", outcome: "interrupted" }]);
});
