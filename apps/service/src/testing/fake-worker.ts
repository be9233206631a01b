/**
 * A stand-in for a proxy, an aggregator, builtin tools or egress: speaks the workers' contract, carries calls from one to
 * the next, records them as a proxy does, and fails where its tool's name says. Started by tests alone.
 */
import { createHash, randomBytes } from "node:crypto";
import { readFileSync, writeSync } from "node:fs";
import { Socket } from "node:net";
import {
  encodeFacts,
  type ProxyFact,
  type ProxyServer,
  type ToolPin,
  WORKER_GRANT_BYTES_MAX,
  workerGrant,
  workerPlan,
} from "@capsem/api";
import { Failure, textOf } from "@capsem/base";
import { native } from "@capsem/native";
import { compileSnapshot, decide, type PolicySnapshot, parseLayer, securityEvent } from "@capsem/policy";
import { createPeer, type Handler, type Peer } from "@capsem/rpc";

const plan = workerPlan.parse(JSON.parse(readFileSync(0, "utf8")));
const socketOf = (fd: number) => new Socket({ fd, readable: true, writable: true });
const log = (message: string, more = {}) =>
  process.stderr.write(`${JSON.stringify({ source: plan.kind, level: "info", message, ...more })}\n`);
const script = (process.env.FAKE_WORKER_SCRIPT ?? "").split(",");
/** By kind; of egress's clients by name. */
const neighbours = new Map<string, Peer>();
const credit = { facts: 0, bytes: 0, refusing: null as { kind: string; message: string } | null };
let snapshot: PolicySnapshot | null = null;
let servers: readonly ProxyServer[] = [];
let pins: readonly ToolPin[] = [];
let vm = plan.vm;

const sha256 = (text: string) => createHash("sha256").update(text).digest("hex");
const service = createPeer({
  role: "guest",
  duplex: socketOf(plan.descriptors.service),
  handlers: plan.kind === "proxy" ? proxyMethods() : {},
});
void service.ended.then(() => process.exit(0));
void readGrants();
void begin();

async function begin(): Promise<void> {
  if (plan.descriptors.lane !== undefined && plan.lane !== undefined && script.includes("lane")) {
    writeSync(plan.descriptors.lane, `${plan.lane.marker} ${plan.lane.generation}\n`);
  }
  if (script.includes(`${plan.kind} dies young`)) process.exit(9);
  if (!script.includes(`${plan.kind} is mute`))
    await service.call("worker.ready", { unconfined: [], notes: [] });
}

function proxyMethods(): Record<string, Handler> {
  return {
    "policy.set": async (params) => {
      const { user, corp, digest } = params as { user: string; corp: string; digest: string };
      if (script.includes("hangs on rules") && snapshot !== null) await new Promise(() => undefined);
      const layer = (source: "user" | "corp", text: string) => {
        const parsed = parseLayer(source, text);
        if (parsed.kind !== "ok") throw new Failure("policy_invalid", JSON.stringify(parsed.faults));
        return parsed.value;
      };
      const next = compileSnapshot({ user: layer("user", user), corp: layer("corp", corp) }, sha256);
      if (next.digest !== digest) throw new Failure("policy_invalid", "another digest");
      log("rules", { text: user });
      snapshot = next;
      return { digest };
    },
    "servers.set": async (params) => {
      ({ servers, pins } = params as { servers: ProxyServer[]; pins: ToolPin[] });
      return {};
    },
    "facts.credit": async (params) => {
      const { add, refusing } = params as {
        add: { facts: number; bytes: number };
        refusing: typeof credit.refusing;
      };
      credit.facts += add.facts;
      credit.bytes += add.bytes;
      credit.refusing = refusing;
      return {};
    },
    "vm.set": async (params) => {
      ({ vm } = params as { vm: typeof vm });
      return {};
    },
    "server.look": async (params) => {
      const { server } = params as { server: string };
      const tools = JSON.parse(readFileSync(process.env.FAKE_WORKER_TOOLS ?? "", "utf8")) as {
        name: string;
      }[];
      const report = tools.map((tool) => {
        const canonical = JSON.stringify(tool, null, 1);
        const texts = { definition: JSON.stringify(tool), canonical, hash: sha256(canonical) };
        return { name: tool.name, title: null, description: "of a fake", ...texts };
      });
      const info = { name: "fake", version: "1", protocol: "2025-11-25", resources: 0, prompts: 0 };
      await service.call("server.health", { server, state: "ok", error: null });
      await service.call("pins.report", { server, info, tools: report });
      return { tools: report.length };
    },
    "tool.call": async (params, { signal }) => callTool(params as Called, signal),
  };
}

interface Called {
  readonly server: string;
  readonly tool: string;
  readonly arguments: string;
  readonly requester: string;
  readonly client: string | null;
  readonly token_id: string | null;
  readonly trace_id: string | null;
  readonly turn_id: string | null;
}

async function callTool(called: Called, signal: AbortSignal) {
  const { server, tool, requester, client, token_id, trace_id, turn_id } = called;
  if (snapshot === null) throw new Failure("internal", "no rules");
  if (credit.refusing !== null) throw new Failure(credit.refusing.kind, credit.refusing.message);
  const isGuest = tool.startsWith("guest_");
  const event_id = randomBytes(6).toString("hex");
  const who = {
    ...{ event_id, time_ms: Date.now(), trace_id, turn_id, client, token_id: isGuest ? null : token_id },
    requester: isGuest ? "guest" : requester,
  };
  const event = securityEvent(
    "mcp.tool_call",
    { event_id, ...(trace_id === null ? {} : { trace_id }) },
    {
      ...(vm === null ? {} : { "vm.id": vm.id }),
      ...(vm === null || vm.name === null ? {} : { "vm.name": vm.name }),
      ...(vm === null || vm.image === null ? {} : { "vm.image": vm.image }),
      "mcp.method": "tools/call",
      "mcp.transport": isGuest ? "framed" : "direct",
      "mcp.server.name": server,
      "mcp.server.external": server !== "local",
      "mcp.server.pinned": pins.some(
        (pin) => pin.server === server && pin.tool === tool && pin.state === "pinned",
      ),
      "mcp.tool_call.name": tool,
      "mcp.tool_call.id": event_id,
      "mcp.request.id": event_id,
      "mcp.request.arguments": JSON.parse(called.arguments) as Record<string, unknown>,
    },
  );
  const decision = decide(snapshot, event);
  const facts = { kind: "decision", who, event: event.toJSON(), decision, policy_digest: snapshot.digest };
  void append([facts]);
  const end = (outcome: string, error: string | null, result: string | null, bodies?: object) =>
    append([
      {
        ...{ kind: "call", who, decision, outcome, error, duration_ms: 1.5 },
        call: {
          ...{ call_id: event_id, origin: server === "local" ? "builtin" : "mcp", method: "tools/call" },
          ...{
            transport: isGuest ? "framed" : "direct",
            server_name: server,
            tool_name: tool,
            request_id: "1",
          },
          ...{
            process_name: isGuest ? "agent" : null,
            arguments_preview: called.arguments,
            response_preview: result,
          },
          ...{ bytes_sent: called.arguments.length, bytes_received: result?.length ?? null },
          ...{ label_in: "{}", label_out: null, is_pinned: true },
        },
        ...(bodies === undefined ? {} : { bodies }),
      },
    ]);
  if (decision.action === "block") {
    void end("blocked", "policy", null);
    throw new Failure("policy", `Cannot call the tool: blocked by ${decision.rule_id}`, {
      facts: { rule_id: decision.rule_id },
    });
  }
  if (decision.action === "ask") {
    const held = (await service.call(
      "ask.hold",
      { who, event: event.toJSON(), decision, title: `${server} ${tool}`, is_later: false },
      { signal, timeoutMs: 60_000 },
    )) as { state: string; ask_id: string };
    if (held.state !== "approved") {
      void end(held.state === "denied" ? "denied" : "expired", null, null);
      throw new Failure("policy", `Cannot call the tool: ${held.state}`, { facts: { ask_id: held.ask_id } });
    }
  }
  try {
    const value = await work(tool);
    const result = JSON.stringify({ content: [{ type: "text", text: value }], isError: false });
    const bodies = tool.endsWith("large")
      ? { request: { text: called.arguments.padEnd(300_000, " x"), bytes: 300_000 } }
      : undefined;
    void end("done", null, result, bodies);
    return { result, event_id };
  } catch (thrown) {
    const kind = thrown instanceof Failure ? thrown.kind : "internal";
    void end("failed", kind, null);
    throw kind === "peer_lost"
      ? new Failure("upstream_failed", "the tool server's process was lost")
      : thrown;
  }
}

function append(facts: readonly object[]): Promise<unknown> {
  credit.facts -= facts.length;
  const bytes = facts.length * 1_024;
  credit.bytes -= bytes;
  return service.call("facts.append", { ...encodeFacts(facts as readonly ProxyFact[]), bytes });
}

/** What a tool does is in its name. */
async function work(tool: string): Promise<string> {
  if (tool.includes("hang")) await new Promise(() => undefined);
  if (tool.includes("flood")) {
    for (let n = 0; n < 3_000; n++) void append([{ kind: "nonsense" }]);
  }
  if (tool.includes("servers")) return servers.map(({ name }) => name).join(",");
  if (tool.includes("name")) return vm?.name ?? "none";
  if (tool.includes("credit")) return JSON.stringify(credit);
  if (tool.includes("egress")) return asked("aggregator", "egress");
  if (tool.includes("aggregator")) return asked("aggregator", "pid");
  if (tool.includes("builtin")) return asked("builtin", "pid");
  return `proxy ${process.pid}`;
}

async function asked(kind: "aggregator" | "builtin", method: string): Promise<string> {
  if (!neighbours.has(kind)) await service.call("worker.need", { kind });
  const peer = await neighbour(kind);
  return String(await peer.call(method, {}, { timeoutMs: 10_000 }));
}

async function neighbour(kind: string): Promise<Peer> {
  const until = performance.now() + 10_000;
  for (;;) {
    const peer = neighbours.get(kind);
    if (peer !== undefined) return peer;
    if (performance.now() > until) throw new Failure("timeout", `no ${kind} was granted`);
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
}

async function readGrants(): Promise<void> {
  for (;;) {
    try {
      const received = await native().receiveDescriptorsLater(
        plan.descriptors.grants,
        WORKER_GRANT_BYTES_MAX,
        {
          timeoutMs: 10_000,
        },
      );
      const [fd] = received.fds;
      if (fd === undefined) return;
      adopt(workerGrant.parse(JSON.parse(textOf(received.payload))), fd);
    } catch (thrown) {
      if (thrown instanceof Failure && thrown.kind === "EAGAIN") continue;
      return;
    }
  }
}

/** The one nearer to the guest is the host role. */
function adopt(grant: ReturnType<typeof workerGrant.parse>, fd: number): void {
  const isHost = plan.kind === "proxy" || (plan.kind !== "egress" && grant.kind === "egress");
  const key = grant.kind === "client" ? grant.name : grant.kind;
  const peer = createPeer({
    role: isHost ? "host" : "guest",
    duplex: socketOf(fd),
    handlers: {
      pid: async () => `${plan.kind} ${process.pid}`,
      egress: async () => String(await (await neighbour("egress")).call("pid", {}, { timeoutMs: 10_000 })),
    },
  });
  neighbours.set(key, peer);
  void peer.ended.then(() => {
    if (neighbours.get(key) === peer) neighbours.delete(key);
  });
}
