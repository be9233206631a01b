import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { sleep } from "@capsem/base";
import type { Vm } from "@capsem/sdk";
import { build } from "esbuild";
import { afterAll, beforeAll, expect, test } from "vitest";
import { GuestClient, type Message, textOf } from "./support/guest-client.ts";
import { startToolServer, type ToolServer } from "./support/mcp-servers.ts";
import { isAlive, type Rig, rounds, startRig, until } from "./support/rig.ts";
import { callsOf, declare, shortOf, type Worker, workersOf } from "./support/tools-rig.ts";

/** What was killed serves again within this. */
const BACK_MS = 2_000;

let rig: Rig;
let vm: Vm;
let other: Vm;
let server: ToolServer;
let child: ServerProcess;
/** Of `vm` alone. */
const pids: { [kind in Worker]?: number | undefined } = {};

interface ServerProcess {
  readonly url: string;
  readonly grant: string;
  readonly process: ChildProcess;
}

async function startChild(port = 0): Promise<ServerProcess> {
  const process_ = spawn(process.execPath, [join(rig.home, "server.mjs"), String(port)], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  const [line] = (await once(createInterface({ input: process_.stdout }), "line")) as [string];
  return { url: line, grant: new URL(line).host, process: process_ };
}

/** The one worker of a kind that is there after something and was not before. */
function newWorker(kind: Worker, before: readonly number[]): number {
  const found = workersOf(rig, kind).filter((pid) => !before.includes(pid));
  expect(found).toHaveLength(1);
  return found[0] as number;
}

beforeAll(async () => {
  rig = await startRig({ pool: 2 });
  await build({
    entryPoints: [join(import.meta.dirname, "support", "mcp-server-main.ts")],
    outfile: join(rig.home, "server.mjs"),
    ...{ bundle: true, platform: "node", format: "esm", logLevel: "error" },
  });
  server = await startToolServer("both");
  child = await startChild();
  await declare(rig, "up", server);
  await declare(rig, "down", child);
  [vm, other] = await Promise.all([rig.create({ name: "hard" }), rig.create({ name: "other" })]);
  const kinds = ["proxy", "aggregator", "builtin"] as const;
  const before = kinds.map((kind) => workersOf(rig, kind));
  await usesTools(vm);
  for (const [at, kind] of kinds.entries()) pids[kind] = newWorker(kind, before[at] ?? []);
  await usesTools(other);
});
afterAll(async () => {
  child.process.kill("SIGKILL");
  await rig.stop();
  await server.close();
});

async function usesTools(of: Vm): Promise<void> {
  const client = new GuestClient(of);
  expect(textOf(await client.call("up__echo", { text: "a" }))).toBe("a");
  expect(textOf(await client.call("local__echo", { text: "a" }))).toBe("a");
  await client.close();
}

interface Load {
  readonly answers: Message[];
  stop(): Promise<void>;
}

/** Calls one after the other in the other VM. */
function load(tool: string): Load {
  const client = new GuestClient(other);
  const answers: Message[] = [];
  let isOver = false;
  const run = async () => {
    while (!isOver) {
      answers.push(await client.call(tool, { text: "steady" }));
      // Emulated processors take whole cores of the machine, which what was killed needs to start.
      await sleep(100);
    }
  };
  const running = run();
  return {
    answers,
    stop: async () => {
      isOver = true;
      await running;
      await client.close();
    },
  };
}

/** Calls again and again until one is served; milliseconds since `from`. */
async function servedAfter(client: GuestClient, tool: string, from: number): Promise<number> {
  for (;;) {
    const { error } = await client.call(tool, { text: "again" });
    const took = performance.now() - from;
    if (error === undefined) return took;
    if (took > 20_000) throw new Error(`not served in 20 s: ${JSON.stringify(error)}`);
  }
}

interface Hanging {
  readonly id: number;
  readonly answer: Promise<Message>;
}

/** A call that hangs at its server, once it is there. */
async function hanging(client: GuestClient, tool: string, name: string): Promise<Hanging> {
  const { id, answer } = client.begin("tools/call", { name: `${tool}__wait`, arguments: { name } });
  const isThere = () => server.calls.some(({ args }) => args.name === name);
  if (tool === "up") await until("it hangs at its server", 20_000, isThere);
  return { id, answer };
}

/** Everything that the client printed of one request. */
const answersTo = (client: GuestClient, id: number) =>
  client.texts.map((text) => JSON.parse(text) as Message).filter((message) => message.id === id);

/** One of `vm`'s, or the one that all share. */
function pidOf(kind: Worker): number {
  if (kind !== "egress") return pids[kind] as number;
  const [pid, ...more] = workersOf(rig, kind);
  expect(more).toEqual([]);
  return pid as number;
}

/** One kill under load; milliseconds until a call is served again. */
async function killOnce(kind: Worker, tool: string, others: string, name: string): Promise<number> {
  const client = new GuestClient(vm);
  await client.initialize();
  const before = (await callsOf(rig, vm)).length;
  const held = kind === "builtin" ? null : await hanging(client, "up", name);
  const steady = load(others);
  await until("the other VM calls", 20_000, () => steady.answers.length >= 2);
  const killed = pidOf(kind);
  const known = workersOf(rig, kind);
  const from = performance.now();
  process.kill(killed, "SIGKILL");
  const took = await servedAfter(client, tool, from);
  expect(await rig.sh(vm, "echo lives")).toBe("lives\n");
  if (held !== null) {
    expect(await held.answer).toMatchObject({ error: { code: -32_603 } });
    // No second answer, and nothing is played again.
    await client.call("up__echo", { text: "later" });
    expect(answersTo(client, held.id)).toHaveLength(1);
    expect(server.calls.filter(({ args }) => args.name === name)).toHaveLength(1);
  }
  const during = steady.answers.length;
  await until("the other VM calls on", 20_000, () => steady.answers.length > during);
  await steady.stop();
  expect(steady.answers.filter(({ error }) => error !== undefined)).toEqual([]);
  await usesTools(other);
  expect(isAlive(killed)).toBe(false);
  if (kind !== "egress") pids[kind] = newWorker(kind, known);
  await client.close();
  const waits = (await callsOf(rig, vm)).slice(before).filter(({ tool_name }) => tool_name === "wait");
  const outcome = kind === "proxy" ? "interrupted" : "failed";
  expect(waits.map(shortOf)).toEqual(held === null ? [] : [`up wait ${outcome}`]);
  return took;
}

// Egress is everybody's: what needs none of it goes on elsewhere.
test.each<[Worker, string, string]>([
  ["aggregator", "up__echo", "up__echo"],
  ["egress", "up__echo", "local__echo"],
  ["builtin", "local__echo", "local__echo"],
  ["proxy", "up__echo", "up__echo"],
])(
  "kill -9 of the %s fails what is pending once, serves again within 2 s, and disturbs no other VM",
  async (kind, tool, others) => {
    const took: number[] = [];
    for (let round = 0; round < rounds(2, 25); round += 1)
      took.push(await killOnce(kind, tool, others, `${kind}-${round}`));
    // The machine may be busy with others: what counts is what it can.
    expect(Math.min(...took)).toBeLessThan(BACK_MS);
  },
);

test("kill -9 of a tool server fails its pending calls once, and others serve; it is back when it is back", async () => {
  const client = new GuestClient(vm);
  await client.initialize();
  expect(textOf(await client.call("down__echo", { text: "up" }))).toBe("up");
  const before = (await callsOf(rig, vm)).length;
  const held = await hanging(client, "down", "d1");
  expect(textOf(await client.call("down__echo", { text: "behind it" }))).toBe("behind it");
  const port = Number(new URL(child.url).port);
  const ended = once(child.process, "exit");
  child.process.kill("SIGKILL");
  await ended;
  expect(await held.answer).toMatchObject({
    error: { code: -32_603, message: expect.stringContaining("down") },
  });
  expect(textOf(await client.call("up__echo", { text: "healthy" }))).toBe("healthy");
  expect(await client.call("down__echo", { text: "x" })).toMatchObject({
    error: { message: expect.stringContaining("down") },
  });
  const names = await client.toolNames();
  expect(names).toContain("up__echo");
  const servers = await rig.client.mcp.servers();
  expect(servers.find(({ name }) => name === "down")).toMatchObject({
    state: "failed",
    error: expect.any(String),
  });
  expect(servers.find(({ name }) => name === "up")).toMatchObject({ state: "ok", error: null });
  child = await startChild(port);
  const from = performance.now();
  const took = await servedAfter(client, "down__echo", from);
  expect(answersTo(client, held.id)).toHaveLength(1);
  await client.close();
  const waits = (await callsOf(rig, vm)).slice(before).filter(({ tool_name }) => tool_name === "wait");
  expect(waits.map(shortOf)).toEqual(["down wait failed"]);
  expect(took).toBeLessThan(BACK_MS);
});

/** Writes frames as no honest client does, each on a connection of its own behind an honest one, and says what came. */
const HOSTILE = `
import json, socket, struct

def frame(stream, payload, flags=0, name=b"", length=None, magic=0x4d43, version=1, header=16, size=None):
    body = struct.pack(">HBBIHHI", magic, version, header, stream, flags, len(name), len(payload) if size is None else size)
    body += name + payload
    return struct.pack(">I", len(body) if length is None else length) + body

def ping(id):
    return json.dumps({"jsonrpc": "2.0", "id": id, "method": "ping"}).encode()

def note():
    return b'{"jsonrpc":"2.0","method":"notifications/initialized"}'

CASES = {
    "honest": frame(5, ping(2)) + struct.pack(">I", 0),
    "oversize": frame(5, ping(2), length=0x7fffffff),
    "just over": frame(5, ping(2), length=1052673),
    "shorter than a header": frame(5, ping(2), length=15),
    "magic": frame(5, ping(2), magic=0x4d44),
    "version": frame(5, ping(2), version=2),
    "header length": frame(5, ping(2), header=17),
    "flags": frame(5, ping(2), flags=0x8000),
    "sum": frame(5, ping(2), size=3),
    "name": frame(5, ping(2), name=b"x" * 129),
    "even id": frame(6, ping(2)),
    "used id": frame(3, ping(2)),
    "lower id": frame(1, ping(2)),
    "request as zero": frame(0, ping(2)),
    "request as notification": frame(0, ping(2), flags=1),
    "notification with an id": frame(5, note(), flags=1),
    "no json": frame(5, b"{"),
    "cut": frame(5, ping(2))[:20],
}

def read(sock, count):
    data = b""
    while len(data) < count:
        more = sock.recv(count - len(data))
        if not more:
            return None
        data += more
    return data

def answer(sock):
    head = read(sock, 4)
    if head is None or head == bytes(4):
        return None
    body = read(sock, struct.unpack(">I", head)[0])
    names = struct.unpack(">H", body[10:12])[0]
    return json.loads(body[16 + names:])

def run(hostile, ends):
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(20)
        sock.connect(b"\\0capsem/traffic")
        sock.sendall(frame(3, ping(1)))
        assert answer(sock)["id"] == 1
        told = []
        try:
            sock.sendall(hostile)
            if ends:
                sock.shutdown(socket.SHUT_WR)
            while True:
                got = answer(sock)
                if got is None:
                    break
                told.append(got.get("error", {"code": "result"})["code"])
            return told
        except socket.timeout:
            return told + ["open"]
        except OSError:
            return told + ["reset"]

print(json.dumps({name: run(hostile, name in ("cut", "no json")) for name, hostile in CASES.items()}))
`;

test("hostile frames on the relay's own socket are refused one by one, without harm to a connection beside them", async () => {
  await vm.files.write("hostile.py", Buffer.from(HOSTILE));
  const client = new GuestClient(vm);
  await client.initialize();
  const held = await hanging(client, "up", "beside");
  const told = JSON.parse(await rig.sh(vm, "python3 hostile.py")) as Record<string, unknown>;
  const refused = [-32_600];
  expect(told).toEqual({
    ...Object.fromEntries(Object.keys(told).map((name) => [name, refused])),
    ...{ honest: ["result"], "no json": [-32_700] },
  });
  expect(Object.keys(told)).toHaveLength(18);
  expect(textOf(await client.call("up__echo", { text: "unharmed" }))).toBe("unharmed");
  server.release("beside");
  expect(textOf(await held.answer)).toBe("waited beside");
  await client.close();
});

test("a program that says nothing, leaves in the middle or opens hundreds of connections harms no other", async () => {
  const flood = `
import socket, struct
socks = []
for at in range(400):
    sock = socket.socket(socket.AF_UNIX)
    sock.settimeout(5)
    try:
        sock.connect(b"\\0capsem/traffic")
        sock.sendall([b"", struct.pack(">I", 1000), b"GET / HT", b"\\x16\\x03\\x01"][at % 4])
    except OSError:
        pass
    socks.append(sock)
    if len(socks) > 150:
        socks.pop(0).close()
print("done")`;
  await vm.files.write("flood.py", Buffer.from(flood));
  const client = new GuestClient(vm);
  await client.initialize();
  const held = await hanging(client, "up", "flooded");
  expect(await rig.sh(vm, "timeout 50 python3 flood.py")).toBe("done\n");
  expect(textOf(await client.call("up__echo", { text: "served" }))).toBe("served");
  server.release("flooded");
  expect(textOf(await held.answer)).toBe("waited flooded");
  const later = new GuestClient(vm);
  expect(textOf(await later.call("up__echo", { text: "new" }))).toBe("new");
  await Promise.all([client.close(), later.close()]);
});

test("a VM that was stopped and started has its tools again, and its workers are gone between", async () => {
  const before = workersOf(rig, "proxy");
  await other.stop();
  await until("its proxy is gone", 10_000, () => workersOf(rig, "proxy").length === before.length - 1);
  await other.start();
  await usesTools(other);
  expect(workersOf(rig, "proxy")).toHaveLength(before.length);
  await other.delete();
  await until("its proxy is gone", 10_000, () => workersOf(rig, "proxy").length === before.length - 1);
  expect(workersOf(rig, "egress")).toHaveLength(1);
});
