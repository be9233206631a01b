import { createHash, randomBytes } from "node:crypto";
import { mkdtempSync, realpathSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Worker } from "node:worker_threads";
import type { LedgerRow } from "@capsem/api";
import { assert } from "@capsem/base";
import { builtPath } from "@capsem/native";
import type { AnyRow } from "../apps/service/src/boundary/parts.ts";
import { createHome, homeLayout } from "../apps/service/src/home/layout.ts";
import { openKeys } from "../apps/service/src/ledger/key-files.ts";
import type { LedgerClient } from "../apps/service/src/ledger/ledger-client.ts";
import { startLedger } from "../apps/service/src/ledger/start-ledger.ts";
import { nodePowers } from "../apps/service/src/powers-node.ts";
import { count } from "./measure.ts";
import { type Figure, figure, quantile } from "./statistics.ts";

const VM = "vm_aaaaaaaaaaaaaaaa";

/** What an append costs whoever acts, and what writing costs whoever asks the service for something else. */
export async function ledgerClientFigures(): Promise<Figure[]> {
  const home = realpathSync(mkdtempSync(join(tmpdir(), "capsem-ledger-bench-")));
  const client = await start(home);
  try {
    return [...(await appendFigures(client)), ...(await askFigures(client, home))];
  } finally {
    await client.close();
    rmSync(home, { recursive: true, force: true });
  }
}

async function start(home: string): Promise<LedgerClient> {
  const layout = homeLayout(home);
  const uid = process.getuid?.() ?? -1;
  await createHome(layout, uid);
  const program = builtPath("ledger.cjs");
  const client = startLedger({
    layout,
    powers: { ...nodePowers(program, program), random: (bytes) => randomBytes(bytes) },
    key: openKeys(layout.keys, uid).head,
    vmBytesMax: 16 * 1024 ** 3,
    allowUnconfined: () => false,
    log: () => undefined,
  });
  await client.ready(VM);
  return client;
}

/** The rows of one act: its decision with its event, a rule that matched, and its end. */
function actRows(n: number): { intent: AnyRow[]; end: LedgerRow<"exec_events"> } {
  const body = `{"process.command":"make test ${n}"}`.padEnd(400, " ");
  const hash = createHash("sha256").update(body).digest("hex");
  const eventId = n.toString(16).padStart(12, "0");
  const who = {
    ...{ event_id: eventId, time_ms: 1_700_000_000_000 + n, trace_id: "f".repeat(32), turn_id: null },
    ...{ requester: "user uid 1000", client: "capsem/1", token_id: null },
  };
  const decision = {
    ...{ ...who, type: "process.exec", action: "allow", rule_id: "builtin.developer.exec", reason: "" },
    ...{ detection: "none", policy_digest: hash, matched: "[]", event_hash: hash, is_redacted: false },
    event: body,
  };
  const rule = {
    ...{ event_id: eventId, time_ms: who.time_ms, rule_id: decision.rule_id, action: "allow", priority: 10 },
    ...{ detection: "none", has_won: true, fault: null, rule: "a rule".repeat(20), event_hash: hash },
  };
  return {
    intent: [
      { table: "security_decision_events", row: decision },
      { table: "security_rule_events", row: rule },
    ],
    end: {
      ...{
        ...who,
        job_id: null,
        kind: "exec",
        command: `make test ${n}`,
        user: null,
        cwd: "/",
        env_names: "[]",
      },
      ...{ exit_code: 0, signal: null, timed_out: false, out_of_memory: false, stdout_bytes: 10 },
      ...{ stderr_bytes: 0, stdout_preview: "ok", stderr_preview: "", decision: "allow" },
      ...{ rule_id: decision.rule_id, reason: "", outcome: "done", error: null, duration_ms: 12.5 },
    },
  };
}

/** One act's rows at a time, as the boundary appends them; divided by their number. */
async function appendFigures(client: LedgerClient): Promise<Figure[]> {
  const together: number[] = [];
  const alone: number[] = [];
  const rounds = count(40, 4);
  for (let round = -2; round < rounds; round++) {
    const acts = Array.from({ length: 500 }, (_, at) => actRows((round + 2) * 500 + at));
    for (const { intent, end } of acts) {
      const startedNs = process.hrtime.bigint();
      client.appendAll(VM, intent);
      const betweenNs = process.hrtime.bigint();
      client.append(VM, "exec_events", end);
      const endedNs = process.hrtime.bigint();
      // The first rounds are for the compiler.
      if (round < 0) continue;
      together.push(Number(betweenNs - startedNs) / 1000 / intent.length);
      alone.push(Number(endedNs - betweenNs) / 1000);
    }
    await client.flush(VM);
  }
  const { rows } = await client.read("read.stats", { ledger: VM });
  assert(rows === (rounds + 2) * 500 * 3, `the ledger has ${rows} rows`);
  return [
    figure("ledger: append of a row, for its caller", "µs", alone, "≤ 5"),
    figure("ledger: append of an intent, for each of its rows", "µs", together, "≤ 5"),
  ];
}

/** In a thread of its own: asks one after the other, for so long, and answers with the times. */
const ASKER = `
const { workerData, parentPort } = require("node:worker_threads");
const { request, Agent } = require("node:http");
const agent = new Agent({ keepAlive: true, maxSockets: 1 });
const ask = () => new Promise((resolve, reject) => {
  const started = performance.now();
  const outgoing = request({ socketPath: workerData.socket, path: "/", agent }, (reply) => {
    reply.resume();
    reply.on("end", () => resolve(performance.now() - started));
  });
  outgoing.on("error", reject);
  outgoing.end();
});
(async () => {
  const times = [];
  for (const end = performance.now() + workerData.ms; performance.now() < end; ) {
    times.push(await ask());
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
  agent.destroy();
  parentPort.postMessage(times);
})();
`;

function askedFor(socket: string, ms: number): Promise<number[]> {
  return new Promise((resolve, reject) => {
    const worker = new Worker(ASKER, { eval: true, workerData: { socket, ms } });
    worker.on("message", resolve);
    worker.on("error", reject);
  });
}

/** A short answer of the process that appends, quiet and while it appends 10,000 rows a second. */
async function askFigures(client: LedgerClient, home: string): Promise<Figure[]> {
  const socket = join(home, "bench.sock");
  const server = createServer((_request, response) => response.end(JSON.stringify(client.status)));
  await new Promise<void>((resolve) => server.listen(socket, resolve));
  const ms = count(5_000, 500);
  try {
    const quiet = await askedFor(socket, ms);
    let n = 1_000_000;
    const writing = setInterval(() => {
      for (let act = 0; act < 25; act++) {
        const { intent, end } = actRows(n++);
        client.appendAll(VM, intent);
        client.append(VM, "exec_events", end);
      }
    }, 10);
    const busy = await askedFor(socket, ms);
    clearInterval(writing);
    await client.flush(VM);
    return [
      figure("status while nothing is written", "ms", quiet, "to compare"),
      figure("status while 10,000 rows/s are written", "ms", busy, "as quiet"),
      figure(
        "the same, p95",
        "ms",
        [
          quantile(
            [...busy].sort((a, b) => a - b),
            0.95,
          ),
        ],
        "≤ 1.2",
      ),
    ];
  } finally {
    server.close();
  }
}
