/**
 * A stand-in for an owner without a VM: speaks the owner contract, runs commands as plain processes of the
 * host, keeps files in the VM's folder, and fails where its script says. Started by tests alone.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { readFileSync, writeSync } from "node:fs";
import { Socket } from "node:net";
import { spawnPlan } from "@capsem/api";
import { sleep } from "@capsem/base";
import { createPeer } from "@capsem/rpc";
import { fakeFileMethods, fakeFileStreams } from "./fake-files.ts";
import { FakeJobs } from "./fake-jobs.ts";
import type { FakePoint, FakeScript } from "./fake-script.ts";

const script = JSON.parse(readFileSync(process.env.FAKE_OWNER_SCRIPT ?? "", "utf8")) as FakeScript;
const plan = spawnPlan.parse(JSON.parse(readFileSync(0, "utf8")));
const started = performance.now();
let hypervisor: ChildProcess | null = null;

const jobs = new FakeJobs(plan.folder, { gone, log });
const peer = createPeer({
  role: "guest",
  duplex: new Socket({ fd: plan.descriptors.rpc, readable: true, writable: true }),
  handlers: {
    claim: async (params) => {
      await reach("claim");
      const { env, hostname } = params as { env: string[]; hostname: string };
      jobs.env = { ...Object.fromEntries(env.map((entry) => entry.split(/=(.*)/s, 2))), HOSTNAME: hostname };
      log("claimed");
      return { ready_ms: 1 };
    },
    stop: async () => {
      await reach("stop");
      setImmediate(() => end(0));
      return {};
    },
    ping: async () => {
      await reach("ping");
      return { guest_ms: 1 };
    },
    "traffic.open": async (params) => {
      log(`traffic ${JSON.stringify(params)}`);
      return {};
    },
    ...jobs.methods(),
    ...fakeFileMethods(plan.folder),
  },
  streaming: { ...jobs.streams(), ...fakeFileStreams(plan.folder) },
});
void peer.ended.then(() => end(0));
void live();

async function live(): Promise<void> {
  await reach("start");
  const words = ["sleep", "600"];
  // As a real one: it dies with its owner. Where it does not, the service must end it, or is seen to leak it.
  if (script.hypervisorOutlives !== true) words.unshift("setpriv", "--pdeathsig", "KILL");
  hypervisor = spawn(words[0] ?? "", words.slice(1), { detached: true, stdio: "ignore" });
  await new Promise((resolve) => hypervisor?.once("spawn", resolve));
  // Until then its parent-death signal may not be set.
  while (readFileSync(`/proc/${hypervisor.pid}/comm`, "utf8").trim() !== "sleep") await sleep(2);
  log("hypervisor runs");
  await sleep(script.readyDelayMs ?? 0);
  await reach("ready");
  if (plan.kind === "golden") save();
  const state = plan.kind === "golden" ? "saved" : plan.pool ? "warm" : "ready";
  const uptime = Math.round(performance.now() - started);
  const hypervisor_pid = hypervisor.pid ?? 0;
  await peer.call("owner.ready", { state, uptime_ms: uptime, hypervisor_pid, unconfined: [] });
  if (plan.kind === "golden") end(0);
  if (script.opensTraffic === true) await peer.call("owner.traffic", { is_open: true });
  if (script.flood !== undefined) {
    spawn("setpriv", ["--pdeathsig", "KILL", "yes", script.flood], { stdio: ["ignore", 2, "ignore"] });
  }
}

function save(): void {
  const { state, memory } = plan.descriptors;
  if (state === undefined || memory === undefined) throw new Error("a golden needs memory and state");
  writeSync(state, "device state");
  writeSync(memory, "memory", 0);
}

async function reach(point: FakePoint): Promise<void> {
  const kind = plan.pool ? "pool" : plan.kind;
  if (script.only !== undefined && !script.only.includes(kind)) return;
  if (script.crash === point) process.exit(7);
  if (script.uncaught === point) {
    setImmediate(() => {
      throw new Error("scripted crash");
    });
    await new Promise(() => undefined);
  }
  if (script.gone?.at === point) await gone(script.gone.reason);
  if (script.hang === point) await new Promise(() => setInterval(() => undefined, 60_000));
}

async function gone(reason: string): Promise<void> {
  hypervisor?.kill("SIGKILL");
  await peer.call("owner.gone", { reason, detail: `scripted: ${reason}` });
  end(1);
}

function end(code: number): void {
  jobs.killAll();
  if (hypervisor?.pid !== undefined) hypervisor.kill("SIGKILL");
  process.exit(code);
}

function log(message: string, source: "owner" | "console" | "guest" = "owner"): void {
  const words = source === "owner" ? { level: "info", message } : { line: message };
  process.stderr.write(`${JSON.stringify({ source, ...words })}\n`);
}
