import { randomBytes } from "node:crypto";
import { readFileSync, readlinkSync } from "node:fs";
import type { Socket } from "node:net";
import { ignore } from "@capsem/base";
import { createHostDataLane, type Mux, type MuxStream, muxTransport, pump } from "@capsem/wire";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { settles, TestHost } from "./test-host.ts";
import { AgentRig, skipReason } from "./test-rig.ts";

const reason = skipReason();
if (reason !== undefined) console.log(`skipped: tool calls through the guest agent: ${reason}`);

const CALL = '{"jsonrpc":"2.0","id":1,"method":"tools/list"}';

describe.skipIf(reason !== undefined)("tool calls through the guest agent", { timeout: 60_000 }, () => {
  const rig = new AgentRig();
  let host: TestHost;
  let generation = 10;

  beforeAll(async () => {
    await rig.start();
    host = new TestHost(await rig.accept("control"), await rig.accept("bulk"));
    await host.startGeneration();
  }, 120_000);
  afterAll(() => rig.stop(), 60_000);

  /** As a proxy that is started for the guest: it answers each frame of a stream with its own payload. */
  async function openLane(port: Socket): Promise<{ mux: Mux; streams: MuxStream[] }> {
    generation += 1;
    const marker = randomBytes(32);
    const streams: MuxStream[] = [];
    const lane = createHostDataLane({
      transport: muxTransport(port),
      onOpen: (stream) => {
        streams.push(stream);
        ignore(echo(stream));
      },
    });
    const started = lane.start(marker, generation);
    pump(port, lane);
    const answer = await host.ask("reopen_traffic", { marker, lane_generation: generation });
    expect(answer).toMatchObject({ name: "ack" });
    return { mux: (await started).mux, streams };
  }

  async function echo(stream: MuxStream): Promise<void> {
    let held = Buffer.alloc(0);
    let isMeta = true;
    for (let chunk = await stream.read(); chunk !== null; chunk = await stream.read()) {
      held = Buffer.concat([held, chunk]);
      if (isMeta) held = held.subarray(held.indexOf(10) + 1);
      isMeta = false;
      while (held.length >= 4 && held.length >= 4 + held.readUInt32BE(0)) {
        const frame = held.subarray(0, 4 + held.readUInt32BE(0));
        held = held.subarray(frame.length);
        if (frame.length > 4) await stream.write(Buffer.from(frame));
      }
    }
    stream.end();
  }

  const call = (user = "user") =>
    host.run(
      { argv: ["/run/capsem-mcp-server"], user, env: ["CAPSEM_PROCESS_NAME=agent"] },
      Buffer.from(`${CALL}\n`),
    );

  function killRelay(): number {
    const pid = rig.relayPid();
    if (pid === undefined) throw new Error("no relay runs");
    process.kill(pid, "SIGKILL");
    return pid;
  }

  test("without a workload there is no lane to open", async () => {
    const answer = await host.ask("reopen_traffic", { marker: randomBytes(32), lane_generation: 1 });
    expect(answer).toMatchObject({ name: "error", body: { kind: "wrong_state" } });
    expect(rig.relayPid()).toBe(undefined);
  });

  test("the relay stands when the workload does, and the first call opens its port", async () => {
    expect(await host.ask("mount_disk", {})).toEqual({ name: "ack", body: { id: expect.any(String) } });
    const pid = rig.relayPid();
    expect(readlinkSync(`/proc/${pid}/ns/net`)).not.toBe(readlinkSync("/proc/self/ns/net"));
    const running = call();
    const { mux } = await openLane(await rig.accept("traffic"));
    expect((await running).stdout.toString()).toBe(`${CALL}\n`);
    expect((await call("root")).stdout.toString()).toBe(`${CALL}\n`);
    expect(mux.streamCount).toBe(0);
  });

  test("no program of the workload may change the client, or reach the relay otherwise", async () => {
    const script = [
      "rm -f /run/capsem-mcp-server 2>&1; echo x > /run/capsem-mcp-server",
      "mv /run/capsem-mcp-server /run/x; umount /run/capsem-mcp-server",
      "ls /proc/*/exe >/dev/null; cat /proc/*/comm | grep -c helper; ls /dev/virtio-ports",
    ].join("; ");
    const { stdout, stderr } = await host.run({ command: script, user: "root" });
    expect(stdout.toString()).toContain("Device or resource busy");
    expect(stderr.toString()).toMatch(/Read-only file system/);
    expect(stdout.toString()).toContain("\n0\n");
    expect((await call()).stdout.toString()).toBe(`${CALL}\n`);
  });

  test("a relay that dies is followed by another, which opens the port for its first client", async () => {
    const old = killRelay();
    expect(await settles(async () => (rig.relayPid() ?? old) !== old)).toBe(true);
    const running = call();
    await openLane(await rig.accept("traffic"));
    expect((await running).stdout.toString()).toBe(`${CALL}\n`);
  });

  test("an order that meets a relay that is being started waits for it", async () => {
    killRelay();
    generation += 1;
    const answer = await host.ask("reopen_traffic", { marker: randomBytes(32), lane_generation: generation });
    expect(answer).toMatchObject({ name: "ack" });
    // The relay opened the port by itself, as it was told to.
    const port = await rig.accept("traffic");
    const running = call();
    await openLane(port);
    expect((await running).stdout.toString()).toBe(`${CALL}\n`);
  });

  /** A relay's end that the agent reads of before the system tells it whose end that is: as on a busy machine. */
  test("an order that meets a relay's end goes to the next one, and the agent goes on", async () => {
    const agent = rig.agentPid();
    process.kill(agent, "SIGSTOP");
    killRelay();
    generation += 1;
    const asked = host.ask("reopen_traffic", { marker: randomBytes(32), lane_generation: generation });
    const pong = host.ping(7);
    // Both are in the agent's socket before it looks again.
    await expect.poll(() => host.sockets[0]?.writableLength, { timeout: 10_000 }).toBe(0);
    process.kill(agent, "SIGCONT");
    expect(await pong).toMatchObject({ sequence: 7 });
    expect(await asked).toMatchObject({ name: "ack" });
    const port = await rig.accept("traffic");
    const running = call();
    await openLane(port);
    expect((await running).stdout.toString()).toBe(`${CALL}\n`);
  });

  test("it is the agent's neighbour, not the workload's", () => {
    const status = readFileSync(`/proc/${rig.relayPid()}/status`, "utf8");
    expect(status).toMatch(/Uid:\s+0\s+0\s+0\s+0\n/);
    const score = (pid: number | undefined) => readFileSync(`/proc/${pid}/oom_score_adj`, "utf8");
    // Where the machine lets the agent protect itself, its relay is as well.
    expect(score(rig.relayPid())).toBe(score(rig.agentPid()));
  });

  test("the end of the workload ends it", async () => {
    await host.ask("prepare_snapshot", { unmount: true });
    expect(rig.relayPid()).toBe(undefined);
  });
});
