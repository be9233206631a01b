import { execFileSync, spawnSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { PORTS } from "@capsem/wire";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { encodeHello } from "../../packages/wire/src/lane-hello.ts";
import { skipReason } from "./rig.ts";
import { TOOLS_ADDRESS } from "./testing/network-guest.ts";
import { readBytes, splitMeta, TrafficRig } from "./testing/traffic-rig.ts";

/** A busy machine takes its time; who is done goes on at once. */
const SOON = { interval: 5, timeout: 10_000 };

const reason = skipReason();
if (reason !== undefined) console.log(`skipped: relay of tool calls: ${reason}`);

/** The line of a client whose name has four letters, as both kinds in these tests. */
const META_BYTES = "\0CAPSEM_META:node\n".length;

describe.skipIf(reason !== undefined)("the relay of tool calls", () => {
  let rig: TrafficRig;
  beforeAll(() => {
    rig = new TrafficRig();
  });
  beforeEach(() => rig.start());
  afterEach(() => rig.stop());
  afterAll(() => rig.remove());

  test("the port is opened for the first client, whose bytes go both ways behind a line with its name", async () => {
    expect(rig.portCount).toBe(0);
    const client = rig.guest.open();
    client.write("hello ");
    const { streams, mux } = await rig.firstLane();
    const stream = await streams.next();
    expect(stream.port).toBe(PORTS.traffic.number);
    client.write("host");
    client.end();
    const { name, rest } = splitMeta(await readBytes(stream));
    expect([name, rest.toString()]).toEqual(["dial", "hello host"]);
    // The client's side is over, the host's is not.
    await stream.write(Buffer.from("answer"));
    stream.end();
    await client.closed.promise;
    expect(client.received.toString()).toBe("answer");
    await stream.closed;
    expect(mux.streamCount).toBe(0);
  });

  test("an HTTP client comes by the address, and its process is found", async () => {
    const client = rig.guest.open(TOOLS_ADDRESS);
    client.write("GET / HTTP/1.1\r\n\r\n");
    const { streams } = await rig.firstLane();
    const stream = await streams.next();
    const { name, rest } = splitMeta(await readBytes(stream, META_BYTES + 18));
    expect([name, rest.toString()]).toEqual(["node", "GET / HTTP/1.1\r\n\r\n"]);
    await stream.write(Buffer.from("HTTP/1.1 200 OK\r\n\r\n"));
    await client.got(19);
    stream.reset("cancelled");
    expect(await client.closed.promise).toBe("ECONNRESET");
  });

  test("a client that resets its connection resets its stream", async () => {
    const client = rig.guest.open(TOOLS_ADDRESS);
    client.write("x");
    const { streams } = await rig.firstLane();
    const stream = await streams.next();
    await readBytes(stream, META_BYTES + 1);
    client.reset();
    await expect(stream.read()).rejects.toMatchObject({ kind: "reset", detail: "cancelled" });
  });

  test("a client that is gone is gone for the host too, after what it still sent", async () => {
    const client = rig.guest.open();
    client.write("last words");
    const { streams, mux } = await rig.firstLane();
    const stream = await streams.next();
    client.destroy();
    const { rest } = splitMeta(await readBytes(stream));
    expect(rest.toString()).toBe("last words");
    // The host says nothing: nobody would read it.
    await stream.closed;
    expect(mux.streamCount).toBe(0);
  });

  test("nothing is read from a client before the lane runs, and then all of it in order", async () => {
    const body = randomBytes(3_000_000);
    const client = rig.guest.open();
    client.write(body);
    const port = await rig.ports.next();
    const early: Buffer[] = [];
    port.on("data", (chunk: Buffer) => early.push(chunk));
    const other = rig.guest.open();
    await other.connected.promise;
    expect(early).toEqual([]);
    const { streams } = await rig.lane(port);
    const found = [await streams.next(), await streams.next()];
    const stream = found.find(({ id }) => id === 1);
    if (stream === undefined) throw new Error("no first stream");
    expect(splitMeta(await readBytes(stream, META_BYTES + body.length)).rest.equals(body)).toBe(true);
  });

  test("16 MiB go each way at once", async () => {
    const body = randomBytes(16 * 1024 * 1024);
    const client = rig.guest.open();
    client.write(body);
    const { streams } = await rig.firstLane();
    const stream = await streams.next();
    const [got] = await Promise.all([readBytes(stream, META_BYTES + body.length), stream.write(body)]);
    expect(splitMeta(got).rest.equals(body)).toBe(true);
    expect((await client.got(body.length)).equals(body)).toBe(true);
  });

  test("a client that does not read holds up nobody, and no more than its credit waits for it", async () => {
    const slow = rig.guest.open();
    await slow.connected.promise;
    slow.pause();
    slow.write("s");
    const { streams } = await rig.firstLane();
    const stuck = await streams.next();
    const body = randomBytes(4_000_000);
    let isWritten = false;
    const writing = stuck.write(body).then(() => {
      isWritten = true;
    });
    const quick = rig.guest.open();
    quick.write("q");
    const stream = await streams.next();
    for (let round = 0; round < 50; round++) {
      await stream.write(Buffer.alloc(50_000, round));
      await quick.got(50_000 * (round + 1));
    }
    expect(isWritten).toBe(false);
    slow.resume();
    await writing;
    expect((await slow.got(body.length)).equals(body)).toBe(true);
  });

  test("readers that are all slow are cut off before they fill the agent's memory", async () => {
    const clients = Array.from({ length: 120 }, () => rig.guest.open());
    for (const client of clients) {
      client.pause();
      client.write("x");
    }
    const { streams } = await rig.firstLane();
    const before = rig.relayResidentBytes();
    const opened = await Promise.all(clients.map(() => streams.next()));
    // Far over what the sockets between hold.
    const body = Buffer.alloc(1_500_000);
    let cutOff = 0;
    for (const stream of opened) {
      stream.write(body).catch(() => {
        cutOff += 1;
      });
    }
    await expect.poll(() => cutOff, { timeout: 15_000 }).toBeGreaterThan(20);
    expect(rig.relayResidentBytes() - before).toBeLessThan(24 * 1024 * 1024);
  });

  test("1,000 clients that leave at any point leave nothing behind", { timeout: 60_000 }, async () => {
    const first = rig.guest.open();
    first.write("first");
    const { streams, mux } = await rig.firstLane();
    const kept = await streams.next();
    const descriptors = rig.relayDescriptors();
    void (async () => {
      for (;;) {
        const stream = await streams.next();
        // As a proxy that is asked something and has no answer yet.
        stream.read().catch(() => undefined);
      }
    })();
    for (let round = 0; round < 20; round++) {
      const clients = Array.from({ length: 50 }, (_, at) =>
        rig.guest.open(at % 2 === 0 ? undefined : TOOLS_ADDRESS),
      );
      for (const [at, client] of clients.entries()) {
        if (at % 3 > 0) client.write("half a request");
        if (at % 5 > 0) await client.connected.promise;
        // A TCP client that closes has only said that it sends no more: the host's own time limit ends it.
        if (at % 2 === 0) client.destroy();
        else client.reset();
      }
      await Promise.all(clients.map(({ closed }) => closed.promise));
    }
    await expect.poll(() => mux.streamCount, { timeout: 20_000 }).toBe(1);
    await expect.poll(() => rig.relayDescriptors(), SOON).toBe(descriptors);
    await kept.write(Buffer.from("still here"));
    expect((await first.got(10)).toString()).toBe("still here");
  });

  test("a new generation ends what the old one carried, and what is left of that is thrown away", async () => {
    const old = [rig.guest.open(undefined, false), rig.guest.open(TOOLS_ADDRESS, false)];
    for (const client of old) client.write("call");
    const { streams, port } = await rig.firstLane();
    await streams.next();
    await streams.next();
    const next = await rig.lane(port, randomBytes(300_000));
    expect(await old[0]?.closed.promise).toBe("");
    expect(await old[1]?.closed.promise).toBe("ECONNRESET");
    const client = rig.guest.open();
    client.write("again");
    const stream = await next.streams.next();
    expect(stream.id).toBe(1);
    expect(splitMeta(await readBytes(stream, META_BYTES + 5)).rest.toString()).toBe("again");
  });

  test("the marker of another generation starts nothing", async () => {
    const client = rig.guest.open();
    client.write("x");
    const port = await rig.ports.next();
    const marker = randomBytes(32);
    const hello = (generation: number) => encodeHello(marker, { lane_generation: generation });
    rig.order(`lane 7 ${marker.toString("hex")}`);
    expect(await rig.lines.next()).toBe("ok 7");
    const [first] = (await once(port, "data")) as [Buffer];
    expect(first.subarray(0, 32).equals(marker)).toBe(true);
    port.write(Buffer.concat([randomBytes(1_000), hello(6), marker, randomBytes(50), hello(7)]));
    const [open] = (await once(port, "data")) as [Buffer];
    // An open frame of stream 1 on port 5002.
    expect(open.subarray(0, 11).toString("hex")).toBe("000000070200000001138a");
  });

  test("a client that no lane comes for is let go after 10 s, and the next one has the port opened anew", {
    timeout: 30_000,
  }, async () => {
    const started = performance.now();
    const client = rig.guest.open(undefined, false);
    client.write("x");
    const port = await rig.ports.next();
    port.resume();
    await client.closed.promise;
    expect(performance.now() - started).toBeGreaterThan(9_500);
    expect(rig.portCount).toBe(1);
    const other = rig.guest.open();
    other.write("y");
    await once(port, "close");
    const { streams } = await rig.firstLane();
    expect(splitMeta(await readBytes(await streams.next(), META_BYTES + 1)).rest.toString()).toBe("y");
  });

  test("a lane whose host is away is opened again for the next client", async () => {
    rig.guest.open().write("x");
    const { port, streams: first } = await rig.firstLane();
    await first.next();
    port.destroy();
    const client = rig.guest.open();
    client.write("y");
    const { streams } = await rig.firstLane();
    expect(splitMeta(await readBytes(await streams.next(), META_BYTES + 1)).rest.toString()).toBe("y");
  });

  test("only the tools' address is reached in the workload's network, and all else is refused at once", async () => {
    const codes = await Promise.all(
      [
        { host: "198.51.100.7", port: 443 },
        { host: "192.0.2.3", port: 80 },
        { host: "2001:db8::1", port: 80 },
        { host: "fe80::1%tools0", port: 80 },
        { host: "127.0.0.1", port: 80 },
        { host: "192.0.2.2", port: 80 },
        { host: "192.0.2.1", port: 443 },
      ].map((target) => rig.guest.open(target).closed.promise),
    );
    const [none, refused] = ["ENETUNREACH", "ECONNREFUSED"];
    expect(codes.map((code) => (code === "EADDRNOTAVAIL" ? none : code))).toEqual([
      ...[none, none, none, none],
      ...[refused, refused, refused],
    ]);
    expect(rig.sh("ip -o route; ip -6 -o route; ip -6 -o addr show tools0")).toBe(
      "192.0.2.1 dev tools0 proto kernel scope link src 192.0.2.2 \n",
    );
  });

  test("the address has no way to it but by connections, one listener, and forwards nothing", () => {
    const network = `nsenter --net=/proc/${rig.relay.pid}/ns/net`;
    expect(
      execFileSync("sh", ["-c", `${network} ip -o route; ${network} ss -Htuanl`], { encoding: "utf8" }),
    ).toMatch(
      /^192\.0\.2\.2 dev tools0 proto kernel scope link src 192\.0\.2\.1 \ntcp\s+LISTEN\s.*\s192\.0\.2\.1:80\s.*\n$/,
    );
    expect(
      execFileSync("sh", ["-c", `${network} cat /proc/sys/net/ipv4/ip_forward`], { encoding: "utf8" }),
    ).toBe("0\n");
    const send = (kind: string, address: string) => {
      const packet = `c.sendto(bytes.fromhex("0800f7fd00020000"), ("${address}", 53))`;
      return rig.sh(
        `python3 -c 'import socket as s; c=s.socket(s.AF_INET, ${kind}); print(${packet})' 2>&1; true`,
      );
    };
    for (const kind of ["s.SOCK_RAW, s.IPPROTO_ICMP", "s.SOCK_DGRAM"]) {
      expect(send(kind, "192.0.2.2")).toBe("8\n");
      expect(send(kind, "192.0.2.1")).toContain("Network is unreachable");
    }
  });

  /** A server as many start theirs; what it says when it cannot listen. */
  const serve = (address: string, family: string) =>
    `python3 -c 'import socket as s; f=s.${family}; print(s.create_server(("${address}", 80), family=f, dualstack_ipv6=f==s.AF_INET6).fileno() > 0)' 2>&1`;

  test("servers of the workload may have port 80 of all addresses", () => {
    expect(rig.sh(serve("0.0.0.0", "AF_INET"))).toBe("True\n");
    expect(rig.sh(serve("::", "AF_INET6"))).toBe("True\n");
  });

  test("nobody in the workload takes the address, neither from a relay nor while there is none", async () => {
    const attack = [
      "import socket as s",
      'at=("192.0.2.1", 80); f=s.socket(); f.setsockopt(s.SOL_IP, 15, 1); f.bind(at); f.listen(); f.settimeout(1)',
      "c=s.socket(); c.settimeout(5); code=c.connect_ex(at)",
      "try: f.accept(); print('taken')\nexcept TimeoutError: print('connected' if code == 0 else 'refused')",
    ].join("\n");
    const run = () => rig.sh(`python3 -c "$(cat <<'END'\n${attack}\nEND\n)"`).trim();
    expect(run()).toBe("connected");
    await rig.stopRelay();
    expect(run()).toBe("refused");
    // What takes rights over the network, which no program of a workload has: then it does.
    rig.sh("ip addr add 192.0.2.1/32 dev lo");
    expect(run()).toBe("taken");
    rig.sh("ip addr del 192.0.2.1/32 dev lo");
  });

  test("a relay that follows a killed one at once has the address again, and its clients are let go", async () => {
    const old = rig.guest.open(TOOLS_ADDRESS);
    old.write(Buffer.alloc(8_000_000));
    // The kernel connects a client before the relay has seen it.
    await rig.ports.next();
    for (let round = 0; round < 3; round++) {
      const ended = once(rig.relay, "exit");
      rig.relay.kill("SIGKILL");
      await ended;
      await rig.startRelay();
    }
    expect(await old.closed.promise).toMatch(/^(ECONNRESET|EPIPE)$/);
    const client = rig.guest.open(TOOLS_ADDRESS);
    client.write("x");
    const { streams } = await rig.firstLane();
    expect(splitMeta(await readBytes(await streams.next(), META_BYTES + 1)).rest.toString()).toBe("x");
    expect(rig.sh("ip -o link show type veth").trim().split("\n")).toHaveLength(1);
  });

  test("it has no rights but those to look for a process, and takes no others", () => {
    const status = execFileSync("cat", [`/proc/${rig.relay.pid}/status`], { encoding: "utf8" });
    // CAP_DAC_READ_SEARCH (2) and CAP_SYS_PTRACE (19)
    expect(status).toMatch(/CapPrm:\s+0000000000080004\n/);
    expect(status).toMatch(/CapEff:\s+0000000000080004\n/);
    expect(status).toMatch(/NoNewPrivs:\s+1\n/);
  });

  test("it works in no network but another's", () => {
    const say = (input: string) =>
      spawnSync(rig.binary, ["traffic", "/nowhere"], { encoding: "utf8", input });
    const start = (input: string) => [say(input).stdout.split(" ").slice(0, 3).join(" "), say(input).status];
    expect(start(`init ${process.pid}\n`)).toEqual(["error namespace EPERM", 1]);
    expect(start("init 4194304\n")).toEqual(["error namespace ESRCH", 1]);
    for (const line of ["init 1\n", "init x\n", "lane 1\n", "\n", "x".repeat(1_000)]) {
      expect(start(line)).toEqual(["error request EINVAL", 1]);
    }
    expect(start("")).toEqual(["", 0]);
  });

  const wrong = [
    "",
    "lane",
    "lane 1",
    `lane 0 ${"0".repeat(64)}`,
    `lane 1 ${"0".repeat(63)}`,
    `lane 1 ${"g".repeat(64)}`,
    `lane 4294967296 ${"0".repeat(64)}`,
    "x".repeat(5_000),
  ];
  for (const line of wrong) {
    test(`the order "${line.slice(0, 24)}" ends it`, async () => {
      const ended = once(rig.relay, "exit");
      rig.order(line);
      expect(await ended).toEqual([1, null]);
    });
  }

  test("it ends with the agent's end of its orders", async () => {
    const ended = once(rig.relay, "exit");
    rig.relay.stdin?.end();
    expect(await ended).toEqual([0, null]);
  });

  test("where there is no port an order fails, and the relay goes on", async () => {
    rig.closePort();
    for (let number = 1; number < 3; number++) {
      rig.order(`lane ${number} ${"0".repeat(64)}`);
      expect(await rig.lines.next()).toBe("error port ENOENT No such file or directory");
    }
    expect(rig.relay.exitCode).toBe(null);
  });
});
