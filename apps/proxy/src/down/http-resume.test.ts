import { expect, test } from "vitest";
import { HttpGuest, requestBytes } from "./testing/http-guest.ts";
import { type LaneRig, laneRig, until } from "./testing/lane-rig.ts";

const rpc = (method: string, params: unknown, id: unknown) => ({ jsonrpc: "2.0", id, method, params });
const call = (name: string, id: unknown, args: unknown = {}) =>
  rpc("tools/call", { name, arguments: args, _meta: { progressToken: `t${id}` } }, id);
const FIRST_STREAM = { accept: "text/event-stream, application/json" };

async function startSession(rig: LaneRig, protocolVersion = "2025-11-25") {
  const guest = new HttpGuest(rig);
  const clientInfo = { name: "test", version: "1" };
  const body = rpc("initialize", { protocolVersion, capabilities: {}, clientInfo }, 0);
  const { headers } = await guest.ask({ body });
  const session = {
    "mcp-session-id": headers.get("mcp-session-id") ?? "",
    "mcp-protocol-version": protocolVersion,
  };
  return { guest, session };
}

/** A call that goes on: it asks for a sample, and nobody answers. */
async function begun(rig: LaneRig, headers: Record<string, string>, id: unknown = 1) {
  const guest = new HttpGuest(rig);
  guest.write(requestBytes({ body: call("sample", id), headers }));
  expect((await guest.head()).headers.get("content-type")).toBe("text/event-stream");
  const came = await guest.through("sampling/createMessage");
  await guest.through("\n\n");
  const [, asked] = /"id":"(ask-[0-9]+)"/.exec(came) ?? [];
  const ids = [...came.matchAll(/^id: (.*)$/gm)].map(([, each]) => each ?? "");
  return { guest, asked, lastId: ids.at(-1) ?? "", came };
}

const resumed = async (rig: LaneRig, headers: Record<string, string>, lastEventId: string) => {
  const guest = new HttpGuest(rig);
  guest.write(requestBytes({ method: "GET", headers: { ...headers, "last-event-id": lastEventId } }));
  return { guest, head: await guest.head() };
};
const answerTo = (id: string | undefined) => ({ jsonrpc: "2.0", id, result: { role: "assistant" } });

test("a stream says first where to go on and when, to whoever knows such events; others have ids alone", async () => {
  const rig = laneRig();
  const { session } = await startSession(rig);
  expect((await begun(rig, { ...session, ...FIRST_STREAM })).came).toMatch(
    /^[0-9a-f]+\r\nid: r1-0\nretry: 1000\ndata: \n\n[\s\S]*event: message\nid: r1-1\ndata: /,
  );
  const older = await startSession(rig, "2025-06-18");
  expect((await begun(rig, older.session)).came).toMatch(/^[0-9a-f]+\r\nevent: message\nid: r1-1\ndata: /);
});

test("a call whose stream was cut goes on, and its client comes back for what it has not got", async () => {
  const rig = laneRig();
  const { guest, session } = await startSession(rig);
  const { guest: first, asked, lastId } = await begun(rig, session);
  first.stream.reset("cancelled");
  await until(() => rig.door.http.connectionCount === 1, "it is gone");
  expect(rig.rail.cancelled).toEqual([]);
  // Answered while nobody is there.
  expect((await guest.ask({ body: answerTo(asked), headers: session })).status).toBe(202);
  await until(() => rig.rail.running.size === 0, "it is done");
  const { guest: second, head } = await resumed(rig, session, lastId);
  expect([head.status, head.headers.get("content-type")]).toEqual([200, "text/event-stream"]);
  const rest = await second.through('"id":1,"result"');
  expect(rest).not.toContain("sampling/createMessage");
  await second.through("\r\n0\r\n\r\n");
  await until(() => rig.door.http.keptChars === 0, "all has left");
  // It had it: there is nothing left.
  expect((await resumed(rig, session, lastId)).head.status).toBe(400);
});

test("from the beginning it has all again, and goes on as it comes", async () => {
  const rig = laneRig();
  const { guest, session } = await startSession(rig);
  const { guest: first, asked } = await begun(rig, { ...session, ...FIRST_STREAM });
  // The old connection is not known to be gone.
  const { guest: second } = await resumed(rig, session, "r1-0");
  await second.through("sampling/createMessage");
  await first.through("\r\n0\r\n\r\n");
  await guest.ask({ body: answerTo(asked), headers: session });
  await second.through('"id":1,"result"');
});

test("each stream is resumed alone, by its own session", async () => {
  const rig = laneRig();
  const { session } = await startSession(rig);
  const one = await begun(rig, session, 1);
  const two = await begun(rig, session, 2);
  one.guest.stream.reset("cancelled");
  two.guest.stream.reset("cancelled");
  const { guest } = await resumed(rig, session, "r2-0");
  expect(await guest.through("sampling/createMessage")).toContain("r2-1");
  const { session: other } = await startSession(rig);
  for (const id of ["r1-0", "r9-1", "r1-", "1", "r1-1\u00e9", "x"]) {
    expect([id, (await resumed(rig, other, id)).head.status]).toEqual([id, 400]);
  }
});

test("who does not come back in time has left: the call is cancelled, and nothing is kept", async () => {
  const rig = laneRig({ resumeMs: 30 });
  const { session } = await startSession(rig);
  const { guest, lastId } = await begun(rig, session);
  guest.stream.reset("cancelled");
  await until(() => rig.door.http.keptChars > 0, "it is kept");
  await expect.poll(() => rig.rail.cancelled).toEqual(["http:1 1"]);
  expect(rig.door.http.keptChars).toBe(0);
  expect((await resumed(rig, session, lastId)).head.status).toBe(400);
});

test("what finds no room is not kept: the loss of its connection is the end of the call", async () => {
  const rig = laneRig({ resumeCharsMax: 20 });
  const { session } = await startSession(rig);
  const { guest } = await begun(rig, session);
  guest.stream.reset("cancelled");
  await expect.poll(() => rig.rail.cancelled).toEqual(["http:1 1"]);
  expect(rig.door.http.keptChars).toBe(0);
});

test("what belongs to no request is kept for a client that comes back, the last of it; a question is not", async () => {
  const rig = laneRig({ resumeEventsMax: 3 });
  const { guest, session } = await startSession(rig);
  const standing = new HttpGuest(rig);
  standing.write(requestBytes({ method: "GET", headers: session }));
  await standing.head();
  const [, id = ""] = /id: (s[0-9]+-0)\nretry/.exec(await standing.through("data: \n\n")) ?? [];
  let count = 10;
  const announced = async () => {
    count += 1;
    const { body } = await guest.ask({ body: call("announce", count), headers: session });
    return /"text":"(true|false)"/.exec(body)?.[1] ?? body;
  };
  expect(await announced()).toBe("true");
  standing.stream.reset("cancelled");
  await until(() => rig.door.http.connectionCount === 1, "it is gone");
  for (let more = 0; more < 4; more += 1) expect(await announced()).toBe("true");
  const asked = await guest.ask({
    body: call("sample", 3),
    headers: { ...session, accept: "application/json" },
  });
  expect(asked.body).toContain("no way");
  const { guest: again, head } = await resumed(rig, session, id);
  expect(head.status).toBe(200);
  const came = await again.through("-5\ndata");
  expect([...came.matchAll(/^id: s[0-9]+-([0-9]+)$/gm)].map(([, number]) => number)).toEqual(["3", "4", "5"]);
  await again.through("list_changed");
  // One that comes long after begins anew.
  const late = laneRig();
  const { session: fresh } = await startSession(late);
  expect((await resumed(late, fresh, "s7-3")).head.status).toBe(200);
});

test("abandoned streams leave nothing behind, and what they kept meanwhile is bounded", async () => {
  const rig = laneRig({ resumeMs: 50, resumeCharsMax: 4_000 });
  const { session } = await startSession(rig);
  let most = 0;
  for (let id = 1; id <= 300; id += 1) {
    const { guest } = await begun(rig, session, id);
    guest.stream.reset("cancelled");
    most = Math.max(most, rig.door.http.keptChars);
  }
  expect(most).toBeGreaterThan(1_000);
  expect(most).toBeLessThanOrEqual(4_000);
  await expect.poll(() => [rig.rail.cancelled.length, rig.door.http.keptChars]).toEqual([300, 0]);
  await until(() => rig.door.http.connectionCount === 1, "all are gone");
  expect(rig.rail.running.size).toBe(0);
});

test("streams end with their session, also those that nobody reads", async () => {
  const rig = laneRig();
  const { guest, session } = await startSession(rig);
  const { guest: first } = await begun(rig, session);
  first.stream.reset("cancelled");
  await until(() => rig.door.http.connectionCount === 1, "it is gone");
  expect((await guest.ask({ method: "DELETE", headers: session })).status).toBe(204);
  await until(() => rig.rail.running.size === 0, "it is over");
  expect(rig.door.http.keptChars).toBe(0);
});

test("an older client that leaves before an event had an id cannot come back, and has cancelled", async () => {
  const rig = laneRig({ keepAliveMs: 10 });
  const { session } = await startSession(rig, "2025-06-18");
  const guest = new HttpGuest(rig);
  guest.write(requestBytes({ body: call("hang", 1), headers: session }));
  await guest.through(": keep-alive");
  guest.stream.reset("cancelled");
  await until(() => rig.rail.cancelled.length === 1, "it is cancelled");
});

test("a plain answer has no stream to come back to: a client that leaves before it has cancelled its request", async () => {
  const rig = laneRig();
  const { session } = await startSession(rig);
  const guest = new HttpGuest(rig);
  guest.write(requestBytes({ body: call("hang", 1), headers: session }));
  await until(() => rig.rail.running.size === 1, "it runs");
  guest.stream.reset("cancelled");
  await until(() => rig.rail.cancelled.length === 1, "it is cancelled");
});
