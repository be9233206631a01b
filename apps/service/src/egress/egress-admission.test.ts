import { Failure } from "@capsem/base";
import { judgeUrl } from "@capsem/net";
import { expect, test, vi } from "vitest";
import { ruleOn } from "../boundary/testing/fake-parts.ts";
import { Resolver } from "./resolve.ts";
import { admissionRig, failureOf, settings, VM } from "./testing/admission-rig.ts";

const DOCS = settings({ docs: 'url = "https://docs.example.com/mcp"' });
const PUBLIC = ["93.184.215.14", "2606:4700::1111"];

test("a declared server is admitted at its origin: its addresses, a lease, one row at its end", async () => {
  const { policy, names, admit, done, rows, lookups, admission } = await admissionRig();
  policy.rules(settings({ docs: 'url = "https://docs.example.com/mcp"\nheaders = { X-Team = "core" }' }));
  names.set("docs.example.com", PUBLIC);
  const admitted = await admit();
  expect(admitted).toMatchObject({
    ...{ lease_ms: 60_000, addresses: PUBLIC, headers: [["X-Team", "core"]], secrets: [] },
  });
  // Another path of the same origin, as a redirect goes to; and it is asked for each time.
  await admit({ url: "https://DOCS.example.com:443/other?x=1" });
  expect(lookups).toEqual(["docs.example.com", "docs.example.com"]);
  expect(rows()).toEqual([]);
  await done({ lease: admitted.lease });
  await done({ lease: admitted.lease });
  expect(rows("host")).toMatchObject([
    {
      ...{ kind: "connection", server_name: "docs", scheme: "https", host: "docs.example.com", port: 443 },
      ...{ method: null, path: null, addresses: JSON.stringify(PUBLIC), bytes_sent: 1, bytes_received: 2 },
      ...{
        decision: "allow",
        rule_id: "egress.declared_server",
        outcome: "done",
        error: null,
        duration_ms: 3,
      },
      ...{
        requester: "service",
        trace_id: "ab".repeat(16),
        event_id: admitted.event_id,
        credential_ref: null,
      },
    },
  ]);
  expect(admission.openCount).toBe(1);
});

test("what a VM's aggregator dials is in that VM's ledger", async () => {
  const { policy, names, admit, done, rows } = await admissionRig();
  policy.rules(DOCS);
  names.set("docs.example.com", PUBLIC);
  const { lease } = await admit({ client: `aggregator:${VM}` });
  await done({ lease, error: "connect_failed" });
  expect(rows(VM)).toMatchObject([{ outcome: "failed", error: "connect_failed", requester: "guest" }]);
  expect(rows("host")).toEqual([]);
});

const ELSEWHERE = [
  "https://docs.example.com:8443/mcp",
  "http://docs.example.com/mcp",
  "https://example.com/mcp",
  "https://evil.docs.example.com/",
  "https://docs.example.com.evil.test/",
  "https://1.1.1.1/",
];
test.each(ELSEWHERE)("a declared server is no way to %s", async (url) => {
  const { policy, names, admit, rows, lookups } = await admissionRig();
  policy.rules(DOCS);
  for (const host of ["docs.example.com", "example.com", "evil.docs.example.com"]) names.set(host, PUBLIC);
  expect(await failureOf(admit({ url }))).toMatchObject({
    kind: "policy",
    facts: { rule_id: "egress.origin" },
  });
  expect(lookups).toEqual([]);
  expect(rows()).toMatchObject([{ outcome: "blocked", decision: "block", rule_id: "egress.origin" }]);
});

const REFUSED = [
  "http://169.254.169.254/latest/meta-data/",
  "http://2852039166/",
  "http://[::ffff:127.0.0.1]/",
  "http://localhost:3000/",
  "http://metadata.google.internal/",
];
test.each(REFUSED)("%s is refused for a server and for a tool, before any name is looked up", async (url) => {
  const { policy, admit, rows, lookups, asks } = await admissionRig();
  policy.rules(settings({ docs: `url = "${url}"` }, ruleOn("http.request", "allow")));
  expect(await failureOf(admit({ url }))).toMatchObject({
    kind: "policy",
    facts: { rule_id: "egress.address" },
  });
  const request = { client: "builtin:host", server: null, url, method: "GET" };
  expect(await failureOf(admit(request))).toMatchObject({
    kind: "policy",
    facts: { rule_id: "egress.address" },
  });
  expect([lookups, asks.held]).toEqual([[], []]);
  expect(rows().map(({ kind, outcome }) => [kind, outcome])).toEqual([
    ["connection", "blocked"],
    ["http.request", "blocked"],
  ]);
});

test("a name with one private address is refused as a whole", async () => {
  const { policy, names, admit, rows } = await admissionRig();
  policy.rules(DOCS);
  for (const bad of ["127.0.0.1", "10.1.2.3", "169.254.169.254", "::1", "fd00:ec2::254", "::ffff:10.0.0.1"]) {
    for (const answer of [[bad], [...PUBLIC, bad], [bad, ...PUBLIC]]) {
      names.set("docs.example.com", answer);
      expect((await failureOf(admit())).kind).toBe("policy");
    }
  }
  // Behind more public ones than anybody dials, too.
  names.set("docs.example.com", [...Array.from({ length: 40 }, (_, n) => `93.184.215.${n}`), "10.0.0.1"]);
  expect((await failureOf(admit())).kind).toBe("policy");
  expect(new Set(rows().map(({ rule_id }) => rule_id))).toEqual(new Set(["egress.address"]));
});

test("a name that moves is followed to no private place: each lease asks again", async () => {
  const { policy, names, admit } = await admissionRig();
  policy.rules(DOCS);
  let count = 0;
  names.set("docs.example.com", () => (++count === 1 ? PUBLIC : ["127.0.0.1"]));
  expect((await admit()).addresses).toEqual(PUBLIC);
  expect(await failureOf(admit())).toMatchObject({
    kind: "policy",
    message: expect.stringMatching(/^Cannot connect to tool server "docs": .*127\.0\.0\.1/),
  });
});

test("a grant opens exactly its host and port, and no metadata behind a granted name", async () => {
  const { policy, names, admit } = await admissionRig();
  const local = 'url = "http://localhost:3000/mcp"\ngrants = ["localhost:3000"]';
  const inside = 'url = "http://db.internal:8080/mcp"\ngrants = ["db.internal:8080"]';
  policy.rules(settings({ mine: local, inside, closed: 'url = "http://localhost:3000/mcp"' }));
  names.set("localhost", ["127.0.0.1", "::1"]);
  names.set("db.internal", ["10.0.0.7"]);
  const url = "http://localhost:3000/mcp";
  expect((await admit({ server: "mine", url })).addresses).toEqual(["127.0.0.1", "::1"]);
  expect((await failureOf(admit({ server: "closed", url }))).kind).toBe("policy");
  const at = { server: "inside", url: "http://db.internal:8080/mcp" };
  expect((await admit(at)).addresses).toEqual(["10.0.0.7"]);
  names.set("db.internal", ["169.254.169.254"]);
  expect((await failureOf(admit(at))).kind).toBe("policy");
  names.set("localhost", ["10.0.0.7"]);
  expect((await failureOf(admit({ server: "mine", url }))).kind).toBe("policy");
});

test("who asks is known by its channel: a tool has no server, an aggregator nothing else, and others nothing", async () => {
  const { policy, names, admit } = await admissionRig();
  policy.rules(
    settings(
      {
        docs: 'url = "https://docs.example.com/"',
        off: 'url = "https://docs.example.com/"\nenabled = false',
      },
      ruleOn("http.request", "allow"),
    ),
  );
  names.set("docs.example.com", PUBLIC);
  expect((await failureOf(admit({ client: "builtin:host" }))).kind).toBe("policy");
  expect((await failureOf(admit({ server: null }))).kind).toBe("policy");
  for (const client of ["proxy:host", "aggregator:vm_bbbbbbbbbbbbbbbb", "aggregator", "", "aggregator:"]) {
    expect([client, (await failureOf(admit({ client }))).kind]).toEqual([client, "not_found"]);
  }
  expect((await failureOf(admit({ server: "other" }))).kind).toBe("not_found");
  expect((await failureOf(admit({ server: "off" }))).kind).toBe("not_found");
});

const SECRET = "sk-canary-7f3a9b2c";

async function withCredential(hosts: string[], servers: (ref: string) => Readonly<Record<string, string>>) {
  const rig = await admissionRig();
  const { ref } = await rig.credentials.inject({ name: "key", secret: SECRET, hosts }, rig.context);
  rig.policy.rules(settings(servers(ref)));
  rig.ledger.clear();
  return { ...rig, ref };
}

test("a reference becomes its secret for the credential's hosts, and is nowhere else", async () => {
  const { ref, names, admit, done, rows, ledger, log, redactor } = await withCredential(
    ["*.example.com"],
    (each) => ({
      docs: `url = "https://docs.example.com/mcp"\nheaders = { Authorization = "Bearer ${each}", X-Team = "core" }`,
      other: `url = "https://docs.example.org/mcp"\nheaders = { Authorization = "Bearer ${each}" }`,
      below: `url = "https://example.com.evil.test/"\nheaders = { Authorization = "${each}" }`,
      plain: `url = "http://docs.example.com/mcp"\nheaders = { Authorization = "Bearer ${each}" }`,
    }),
  );
  for (const host of ["docs.example.com", "docs.example.org", "example.com.evil.test"])
    names.set(host, PUBLIC);
  const { lease, headers, secrets } = await admit();
  expect(headers).toEqual([
    ["Authorization", `Bearer ${SECRET}`],
    ["X-Team", "core"],
  ]);
  expect(secrets).toContain(SECRET);
  await done({ lease });
  const refusals = [
    await failureOf(admit({ server: "other", url: "https://docs.example.org/mcp" })),
    await failureOf(admit({ server: "below", url: "https://example.com.evil.test/" })),
    await failureOf(admit({ server: "plain", url: "http://docs.example.com/mcp" })),
  ];
  for (const refusal of refusals) {
    expect(refusal).toMatchObject({ kind: "policy", facts: { rule_id: "egress.credential" } });
  }
  expect(rows()[0]).toMatchObject({ credential_ref: ref, outcome: "done" });
  const stored = JSON.stringify([ledger.text, log, refusals.map(({ message, facts }) => [message, facts])]);
  expect(stored).not.toContain(SECRET);
  expect(redactor.text(SECRET).isRedacted).toBe(true);
});

test("a credential that names no host is lent to none; one of this machine goes without TLS to this machine alone", async () => {
  const none = await withCredential([], (ref) => ({
    docs: `url = "https://docs.example.com/mcp"\nheaders = { Authorization = "${ref}" }`,
  }));
  none.names.set("docs.example.com", PUBLIC);
  expect(await failureOf(none.admit())).toMatchObject({ facts: { rule_id: "egress.credential" } });
  const local = await withCredential(["localhost", "db.internal"], (ref) => ({
    mine: `url = "http://localhost:3000/"\ngrants = ["localhost:3000"]\nheaders = { Authorization = "${ref}" }`,
    inside: `url = "http://db.internal/"\ngrants = ["db.internal:80"]\nheaders = { Authorization = "${ref}" }`,
  }));
  local.names.set("localhost", ["127.0.0.1"]);
  local.names.set("db.internal", ["10.0.0.7"]);
  expect((await local.admit({ server: "mine", url: "http://localhost:3000/" })).secrets).toContain(SECRET);
  const inside = local.admit({ server: "inside", url: "http://db.internal/" });
  expect(await failureOf(inside)).toMatchObject({ facts: { rule_id: "egress.credential" } });
});

test("a change of a declaration, or of its credential, takes back what was lent by it and nothing else", async () => {
  const { ref, policy, names, admit, admission, revoked, credentials, context } = await withCredential(
    ["*.example.com"],
    (each) => ({
      docs: `url = "https://docs.example.com/mcp"\nheaders = { Authorization = "${each}" }`,
      other: 'url = "https://other.example.com/"',
    }),
  );
  credentials.onForgotten((each) => void admission.credentialForgotten(each));
  names.set("docs.example.com", PUBLIC);
  names.set("other.example.com", PUBLIC);
  await admit();
  await admit({ server: "other", url: "https://other.example.com/" });
  await admission.rulesChanged();
  expect(revoked).toEqual([]);
  const docs = `url = "https://docs.example.com/mcp"\nheaders = { Authorization = "${ref}" }`;
  policy.rules(settings({ docs, other: 'url = "https://other.example.com/"\nenabled = false' }));
  await admission.rulesChanged();
  expect(revoked).toEqual([["egress.revoke", { client: null, server: "other" }]]);
  await credentials.delete(ref, context);
  expect(revoked[1]).toEqual(["egress.revoke", { client: null, server: "docs" }]);
  policy.rules("");
  await admission.rulesChanged();
  expect(revoked.slice(2)).toEqual([
    ["egress.revoke", { client: null, server: "docs" }],
    ["egress.revoke", { client: null, server: "other" }],
  ]);
});

test("an egress that does not say that it gave a lease up is told of to whoever changed the rules", async () => {
  const { policy, names, admit, admission, revoked, log } = await admissionRig({ revoke: "timeout" });
  policy.rules(DOCS);
  names.set("docs.example.com", PUBLIC);
  await admit();
  policy.rules("");
  await expect(admission.rulesChanged()).rejects.toMatchObject({ kind: "timeout" });
  await admission.credentialForgotten("credential:blake3:none");
  expect([revoked.length, log]).toEqual([1, []]);
});

test("a declaration that changes while it is being admitted is not admitted by its old words", async () => {
  const { policy, names, admit } = await admissionRig();
  policy.rules(DOCS);
  names.set("docs.example.com", async () => {
    policy.rules(settings({ docs: 'url = "https://docs.example.com/mcp"\nheaders = { X-New = "1" }' }));
    return PUBLIC;
  });
  expect(await failureOf(admit())).toMatchObject({ kind: "policy", retryable: true });
  names.set("docs.example.com", PUBLIC);
  expect((await admit()).headers).toEqual([["X-New", "1"]]);
});

const FETCH = { client: `builtin:${VM}`, server: null, url: "https://example.com/a%20b?q=1", method: "GET" };

test("a request of a tool passes the boundary, is admitted once, and its row says how it ended", async () => {
  const { policy, names, admit, done, rows, ledger } = await admissionRig();
  policy.rules(
    ruleOn(
      "http.request",
      "allow",
      ' && http.host == "example.com" && http.headers["accept"] == "text/html"',
    ),
  );
  names.set("example.com", PUBLIC);
  const admitted = await admit({
    ...FETCH,
    headers: [
      ["Accept", "text/html"],
      ["Cookie", ""],
    ],
  });
  expect(admitted).toMatchObject({ lease_ms: 0, addresses: PUBLIC, headers: [], secrets: [] });
  const [decision] = ledger.of("security_decision_events", VM);
  expect(decision).toMatchObject({ type: "http.request", action: "allow", requester: "guest" });
  expect(decision?.event_id).toBe(admitted.event_id);
  await done({ lease: admitted.lease, status: 404 });
  expect(rows(VM)).toMatchObject([
    {
      ...{
        kind: "http.request",
        host: "example.com",
        port: 443,
        method: "GET",
        path: "/a%20b?q=1",
        status: 404,
      },
      ...{
        addresses: JSON.stringify(PUBLIC),
        bytes_received: 2,
        outcome: "done",
        event_id: admitted.event_id,
      },
    },
  ]);
});

test("what a rule blocks is neither looked up nor dialled, and says its rule", async () => {
  const { policy, names, admit, rows, lookups } = await admissionRig();
  names.set("example.com", PUBLIC);
  policy.rules(ruleOn("http.request", "allow"));
  await admit(FETCH);
  policy.rules(ruleOn("http.request", "block"));
  const failure = await failureOf(admit(FETCH));
  expect(failure).toMatchObject({ kind: "policy", facts: { rule_id: "profiles.rules.guard" } });
  expect(failure.message).toContain("Cannot fetch from example.com");
  expect(lookups).toEqual(["example.com"]);
  expect(rows(VM)).toMatchObject([{ outcome: "blocked", status: null }]);
});

test("where a rule asks, a person decides before anything leaves; a caller who goes takes the ask along", async () => {
  const { policy, names, admit, rows, lookups, asks } = await admissionRig();
  policy.rules(ruleOn("http.request", "ask"));
  names.set("example.com", PUBLIC);
  const approved = admit(FETCH);
  const asked = (count: number) => vi.waitFor(() => expect(asks.held).toHaveLength(count), 5_000);
  await asked(1);
  expect([asks.held[0]?.asked.title, lookups]).toEqual(["GET https://example.com:443/a%20b?q=1", []]);
  asks.held[0]?.resolve("approved");
  expect((await approved).addresses).toEqual(PUBLIC);
  const denied = failureOf(admit(FETCH));
  await asked(2);
  asks.held[1]?.resolve("denied");
  expect(await denied).toMatchObject({ kind: "policy", facts: { ask_id: "ask_abcdefghij234567" } });
  const controller = new AbortController();
  const left = failureOf(admit(FETCH, controller.signal));
  await asked(3);
  controller.abort();
  expect((await left).kind).toBe("policy");
  expect(lookups).toHaveLength(1);
  expect(rows(VM).map(({ outcome }) => outcome)).toEqual(["denied", "cancelled"]);
});

test("a request whose name is private, unknown or too slow fails after it was allowed, and its row says why", async () => {
  const { policy, names, admit, rows, admission, lookups } = await admissionRig();
  policy.rules(ruleOn("http.request", "allow"));
  names.set("example.com", ["93.184.215.14", "10.0.0.1"]);
  expect(await failureOf(admit(FETCH))).toMatchObject({
    kind: "policy",
    facts: { rule_id: "egress.address" },
  });
  expect((await failureOf(admit({ ...FETCH, url: "https://none.example.com/" }))).kind).toBe("dns_failed");
  names.set("slow.example.com", () => new Promise(() => undefined));
  const controller = new AbortController();
  const slow = failureOf(admit({ ...FETCH, url: "https://slow.example.com/" }, controller.signal));
  await vi.waitFor(() => expect(lookups).toContain("slow.example.com"), 5_000);
  controller.abort();
  expect((await slow).kind).toBe("cancelled");
  expect(rows(VM).map(({ outcome, error }) => [outcome, error])).toEqual([
    ["failed", "egress.address"],
    ["failed", "dns_failed"],
    ["cancelled", "cancelled"],
  ]);
  expect(admission.openCount).toBe(0);
});

test("nothing leaves that cannot be recorded", async () => {
  const { policy, names, admit, ledger } = await admissionRig();
  policy.rules(settings({ docs: 'url = "https://docs.example.com/mcp"' }, ruleOn("http.request", "allow")));
  names.set("docs.example.com", PUBLIC);
  names.set("example.com", PUBLIC);
  ledger.trouble.set("*", "ledger_away");
  expect((await failureOf(admit())).kind).toBe("ledger_away");
  expect((await failureOf(admit(FETCH))).kind).toBe("ledger_away");
});

test("the end of egress ends all that it had open, and its next life begins with nothing", async () => {
  const { policy, names, admit, rows, admission } = await admissionRig();
  policy.rules(settings({ docs: 'url = "https://docs.example.com/mcp"' }, ruleOn("http.request", "allow")));
  names.set("docs.example.com", PUBLIC);
  names.set("example.com", PUBLIC);
  await admit();
  await admit(FETCH);
  admission.lost();
  admission.lost();
  expect([...rows("host"), ...rows(VM)].map(({ kind, outcome, error }) => [kind, outcome, error])).toEqual([
    ["connection", "interrupted", "egress ended"],
    ["http.request", "interrupted", "egress ended"],
  ]);
  expect(admission.openCount).toBe(0);
});

test("what was being admitted when egress ended is ended too, and opens nothing", async () => {
  const { policy, names, admit, rows, admission, lookups } = await admissionRig();
  policy.rules(settings({ docs: 'url = "https://docs.example.com/mcp"' }, ruleOn("http.request", "allow")));
  const gives: ((value: readonly string[]) => void)[] = [];
  for (const name of ["docs.example.com", "example.com"])
    names.set(name, () => new Promise((resolve) => void gives.push(resolve)));
  const admitted = [admit(), admit(FETCH)];
  await vi.waitFor(() => expect(lookups).toHaveLength(2));
  admission.lost();
  for (const give of gives) give(PUBLIC);
  await Promise.allSettled(admitted);
  expect([...rows("host"), ...rows(VM)].map(({ kind, outcome, error }) => [kind, outcome, error])).toEqual([
    ["connection", "interrupted", "egress ended"],
    ["http.request", "interrupted", "egress ended"],
  ]);
  expect(admission.openCount).toBe(0);
});

test("a server whose request was cancelled while it was admitted has no lease", async () => {
  const { policy, admit, admission, ledger } = await admissionRig();
  policy.rules(settings({ docs: 'url = "http://127.0.0.1:3000/mcp"\ngrants = ["127.0.0.1:3000"]' }));
  const controller = new AbortController();
  // The ledger is there in the moment in which the caller leaves.
  ledger.ready = async () => controller.abort();
  const left = failureOf(admit({ url: "http://127.0.0.1:3000/mcp" }, controller.signal));
  expect((await left).kind).toBe("cancelled");
  expect(admission.openCount).toBe(0);
});

test("a name is not looked up for who left in the moment that it had its place", async () => {
  const lookups: string[] = [];
  const resolver = new Resolver(async (host) => {
    lookups.push(host);
    return PUBLIC;
  });
  const judged = judgeUrl("https://example.com/", []);
  if (judged.kind === "refused") throw new Error(judged.reason);
  const controller = new AbortController();
  const left = failureOf(resolver.resolve(judged.target, controller.signal));
  controller.abort(new Failure("cancelled", "the caller is gone"));
  expect((await left).kind).toBe("cancelled");
  expect(lookups).toEqual([]);
  expect(await resolver.resolve(judged.target, new AbortController().signal)).toMatchObject({ kind: "ok" });
});

test("a few names are looked up at a time, and one that nobody answers holds up no more than its place", async () => {
  const { policy, names, admit, lookups } = await admissionRig();
  policy.rules(ruleOn("http.request", "allow"));
  const gives: ((value: readonly string[]) => void)[] = [];
  names.set("slow.example.com", () => new Promise((resolve) => void gives.push(resolve)));
  const slow = Array.from({ length: 6 }, () => admit({ ...FETCH, url: "https://slow.example.com/" }));
  for (let given = 0; given < slow.length; given += 1) {
    const underWay = Math.min(2, slow.length - given);
    await vi.waitFor(() => expect(gives).toHaveLength(underWay), 5_000);
    gives.shift()?.(PUBLIC);
  }
  expect(lookups).toHaveLength(slow.length);
  expect((await Promise.all(slow)).map(({ addresses }) => addresses)).toEqual(Array(6).fill(PUBLIC));
});

test("builtin tools are sent to a local place where that is granted", async () => {
  const { policy, admit } = await admissionRig({ builtinGrants: ["127.0.0.1:3000"] });
  policy.rules(ruleOn("http.request", "allow"));
  expect((await admit({ ...FETCH, url: "http://127.1:3000/" })).addresses).toEqual(["127.0.0.1"]);
  expect((await failureOf(admit({ ...FETCH, url: "http://127.1:3001/" }))).kind).toBe("policy");
});

test("a call of another shape is none", async () => {
  const { admit } = await admissionRig();
  expect((await failureOf(admit({ url: 1 as unknown as string }))).kind).toBe("invalid_input");
  expect((await failureOf(admit({ extra: 1 } as object))).kind).toBe("invalid_input");
});

test("a lease whose answer was lost is ended by the name that it was asked for with", async () => {
  const { policy, names, admission, admit, done, rows, log } = await admissionRig();
  policy.rules(DOCS);
  names.set("docs.example.com", PUBLIC);
  await admit({ lease: "lease_lost" });
  expect(admission.openCount).toBe(1);
  await done({ lease: "lease_lost", error: "cancelled" });
  await done({ lease: "lease_never", error: "cancelled" });
  expect([admission.openCount, rows().map(({ outcome }) => outcome), log]).toEqual([0, ["cancelled"], []]);
  // A second one of a name ends the first: nothing is forgotten.
  await admit({ lease: "lease_twice" });
  await admit({ lease: "lease_twice" });
  expect([admission.openCount, rows().at(-1)?.outcome]).toEqual([1, "interrupted"]);
});
