import { expect, test } from "vitest";
import { type HttpAsk, HttpGuest, requestBytes } from "./testing/http-guest.ts";
import { type LaneRig, laneRig, until } from "./testing/lane-rig.ts";

const rpc = (method: string, params?: unknown, id: unknown = 1) => ({ jsonrpc: "2.0", id, method, params });
const call = (name: string, args: unknown = {}, id: unknown = 1) =>
  rpc("tools/call", { name, arguments: args }, id);
const initialize = rpc("initialize", {
  protocolVersion: "2025-11-25",
  capabilities: {},
  clientInfo: { name: "test", version: "1" },
});

const asked = async (rig: LaneRig, what: HttpAsk) => {
  const guest = new HttpGuest(rig);
  const answer = await guest.ask(what);
  guest.stream.reset("cancelled");
  return answer;
};

async function startSession(rig: LaneRig): Promise<{ guest: HttpGuest; session: string }> {
  const guest = new HttpGuest(rig);
  const answer = await guest.ask({ body: initialize });
  expect(answer.status).toBe(200);
  return { guest, session: answer.headers.get("mcp-session-id") ?? "" };
}

test("a session from initialize to DELETE", async () => {
  const rig = laneRig();
  const { guest, session } = await startSession(rig);
  expect(session).toBe("session-1");
  const headers = { "mcp-session-id": session, "mcp-protocol-version": "2025-11-25" };
  const told = await guest.ask({ body: { jsonrpc: "2.0", method: "notifications/initialized" }, headers });
  expect(told.status).toBe(202);
  const answer = await guest.ask({ body: call("echo", { text: "in session" }, 2), headers });
  expect(answer.body).toContain("in session");
  expect(answer.headers.get("mcp-session-id")).toBe(session);
  expect(rig.rail.clients).toHaveLength(1);
  expect(rig.rail.clients[0]).toMatchObject({ taintKey: "http:1", protocolHint: null });

  expect((await guest.ask({ method: "DELETE", headers })).status).toBe(204);
  expect(rig.rail.closed).toHaveLength(1);
  expect((await guest.ask({ body: rpc("ping"), headers })).status).toBe(404);
  expect(rig.door.http.sessionCount).toBe(0);
});

test("what belongs to no request comes on the session's GET, of which there is one", async () => {
  const rig = laneRig({ keepAliveMs: 20 });
  const { guest, session } = await startSession(rig);
  const headers = { "mcp-session-id": session };
  expect((await guest.ask({ body: call("announce", {}, 2), headers })).body).toContain('"text":"false"');

  const standing = new HttpGuest(rig);
  standing.write(requestBytes({ method: "GET", headers }));
  expect((await standing.head()).headers.get("content-type")).toBe("text/event-stream");
  expect((await asked(rig, { method: "GET", headers })).status).toBe(409);
  const wrong = { ...headers, accept: "application/json" };
  expect((await asked(rig, { method: "GET", headers: wrong })).status).toBe(406);
  expect((await guest.ask({ body: call("announce", {}, 3), headers })).body).toContain('"text":"true"');
  await standing.through("notifications/tools/list_changed");
  await standing.through(": keep-alive");

  standing.stream.reset("cancelled");
  await until(() => rig.door.http.connectionCount === 1, "the stream is gone");
  const again = new HttpGuest(rig);
  again.write(requestBytes({ method: "GET", headers }));
  expect((await again.head()).status).toBe(200);
});

test("a request of a server goes out on the call's stream, and its answer comes by a POST", async () => {
  const rig = laneRig();
  const { guest, session } = await startSession(rig);
  const headers = { "mcp-session-id": session };
  const caller = new HttpGuest(rig);
  caller.write(requestBytes({ body: call("sample", {}, 5), headers }));
  await caller.through('"method":"sampling/createMessage"');
  const answer = { jsonrpc: "2.0", id: "ask-1", result: { role: "assistant" } };
  expect((await guest.ask({ body: answer, headers })).status).toBe(202);
  await caller.through("assistant");

  // Without a session nobody could answer.
  const alone = await asked(rig, { body: call("sample") });
  expect(alone.body).toContain("no way");
});

test("a connection that breaks cancels its call and leaves the session", async () => {
  const rig = laneRig();
  const { guest, session } = await startSession(rig);
  const headers = { "mcp-session-id": session };
  const caller = new HttpGuest(rig);
  caller.write(requestBytes({ body: call("hang", {}, "a"), headers }));
  await until(() => rig.rail.running.size === 1, "it runs");
  const twice = await guest.ask({ body: rpc("ping", {}, "a"), headers });
  expect(twice.status).toBe(400);
  caller.stream.reset("cancelled");
  await until(() => rig.rail.cancelled.length === 1, "it is cancelled");
  expect(rig.rail.methods()).toContain("notifications/cancelled");
  expect((await guest.ask({ body: rpc("ping", {}, "a"), headers })).status).toBe(200);
  expect(rig.rail.closed).toEqual([]);
});

test("a cancelled call ends its answer without one", async () => {
  const rig = laneRig();
  const { guest, session } = await startSession(rig);
  const headers = { "mcp-session-id": session };
  const caller = new HttpGuest(rig);
  caller.write(requestBytes({ body: call("hang", {}, 0), headers }));
  await until(() => rig.rail.running.size === 1, "it runs");
  const cancel = { jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: 0 } };
  await guest.ask({ body: cancel, headers });
  expect((await caller.answer()).status).toBe(202);
});

test("a session whose initialize is refused is none", async () => {
  const rig = laneRig();
  const answer = await asked(rig, { body: rpc("initialize", { protocolVersion: "refuse me" }) });
  expect(JSON.parse(answer.body).error.code).toBe(-32_602);
  expect(answer.headers.has("mcp-session-id")).toBe(false);
  await until(() => rig.door.http.sessionCount === 0, "no session stays");
});

test("sessions that nobody uses end, and make room when there are too many", async () => {
  const rig = laneRig({ sessionsMax: 3, sessionIdleMs: 40 });
  const first = await startSession(rig);
  const second = await startSession(rig);
  await startSession(rig);
  const headers = { "mcp-session-id": first.session };
  expect((await first.guest.ask({ body: rpc("ping"), headers })).status).toBe(200);
  await startSession(rig);
  // The second was used longest ago.
  expect(rig.door.http.sessionCount).toBe(3);
  const gone = { "mcp-session-id": second.session };
  expect((await second.guest.ask({ body: rpc("ping"), headers: gone })).status).toBe(404);

  const standing = new HttpGuest(rig);
  standing.write(requestBytes({ method: "GET", headers }));
  await standing.head();
  rig.clock.nowMs = 41;
  await new Promise((resolve) => setTimeout(resolve, 30));
  expect(rig.door.http.sessionCount).toBe(1);
  expect((await first.guest.ask({ body: rpc("ping"), headers })).status).toBe(200);
});

test("when all sessions are in use a new one is refused, and none is taken away", async () => {
  const rig = laneRig({ sessionsMax: 2 });
  for (let count = 0; count < 2; count += 1) {
    const { session } = await startSession(rig);
    const caller = new HttpGuest(rig);
    caller.write(requestBytes({ body: call("hang", {}, 2), headers: { "mcp-session-id": session } }));
  }
  await until(() => rig.rail.running.size === 2, "both run");
  expect((await asked(rig, { body: initialize })).status).toBe(503);
  expect(rig.rail.cancelled).toEqual([]);
});

test("two sessions with the same ids never see each other's answers", async () => {
  const rig = laneRig();
  const sessions = await Promise.all([startSession(rig), startSession(rig), startSession(rig)]);
  const answers = await Promise.all(
    sessions.flatMap(({ session }, at) =>
      [1, 2, 3].map(async (id) => {
        const headers = { "mcp-session-id": session };
        const { body } = await asked(rig, { body: call("echo", { text: `${at}/${id}` }, id), headers });
        return body.includes(`"${at}/${id}"`) && body.includes(`"id":${id},`);
      }),
    ),
  );
  expect(answers).toEqual(Array(9).fill(true));
});
