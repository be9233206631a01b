import { readFileSync } from "node:fs";
import { assert, messageOf, within } from "@capsem/base";
import { count, isShort } from "./measure.ts";
import { type Figure, figure } from "./statistics.ts";
import { startCapsem } from "./tool-capsem.ts";
import type { Contender } from "./tool-contender.ts";
import { directStarts, installPeers, peerStarts, type Start, startServer } from "./tool-peers.ts";

/** What is asked of each contender, one round after the other. */
interface Trial {
  readonly name: string;
  readonly unit: string;
  readonly rounds: number;
  readonly promise: string;
  /** Values of one round. Throws where the contender does not do it. */
  run(contender: Contender): Promise<number[]>;
}

const START_TIMEOUT_MS = 60_000;
const ROUNDS = count(5, 1);
/** Calls that each contender was sent since they were last counted. */
const sent = new Map<Contender, number>();
let nonces = 0;

/** Milliseconds of one echo; its bytes are compared. */
async function echoMs(contender: Contender, message: string): Promise<number> {
  nonces += 1;
  sent.set(contender, (sent.get(contender) ?? 0) + 1);
  const started = performance.now();
  const text = await contender.call("echo", { message, nonce: `${contender.name} ${nonces}` });
  const ms = performance.now() - started;
  assert(text === message, `${contender.name} must answer with what was sent`);
  return ms;
}

async function inTurn(calls: number, one: () => Promise<number>): Promise<number[]> {
  const values: number[] = [];
  for (let call = 0; call < calls; call += 1) values.push(await one());
  return values;
}

async function perSecond(contender: Contender, calls: number, atOnce: number): Promise<number[]> {
  const message = "x".repeat(100);
  let left = calls;
  const started = performance.now();
  const work = async () => {
    while (left > 0) {
      left -= 1;
      await echoMs(contender, message);
    }
  };
  await Promise.all(Array.from({ length: atOnce }, work));
  return [(calls / (performance.now() - started)) * 1_000];
}

const small = "x".repeat(100);
const large = "y".repeat(1_000_000);

const TRIALS: readonly Trial[] = [
  {
    ...{ name: "100 B", unit: "ms", rounds: ROUNDS, promise: "" },
    run: (contender) => inTurn(count(300, 10), () => echoMs(contender, small)),
  },
  {
    ...{ name: "1 MB", unit: "ms", rounds: ROUNDS, promise: "" },
    run: (contender) => inTurn(count(10, 1), () => echoMs(contender, large)),
  },
  {
    ...{ name: "10 MB answer", unit: "ms", rounds: ROUNDS, promise: "≤ 200" },
    run: (contender) =>
      inTurn(count(2, 1), async () => {
        const bytes = 10_000_000;
        const started = performance.now();
        const text = await contender.call("make", { bytes });
        const ms = performance.now() - started;
        assert(text.length === bytes && text[bytes - 1] === "m", `${contender.name} must give all bytes`);
        return ms;
      }),
  },
  {
    ...{ name: "16 in flight", unit: "calls/s", rounds: ROUNDS, promise: "≥ 960" },
    run: (contender) => perSecond(contender, count(1_000, 32), 16),
  },
  {
    ...{ name: "64 in flight", unit: "calls/s", rounds: ROUNDS, promise: "" },
    run: (contender) => perSecond(contender, count(2_000, 64), 64),
  },
];

/** The same calls by each way in turn, round by round, so that what else goes on meets all alike. */
export async function toolFigures(): Promise<Figure[]> {
  const server = await startServer();
  const capsem = await startCapsem(server.url);
  const contenders: Contender[] = [...capsem.contenders];
  try {
    const folder = isShort ? null : await installPeers();
    const starts = {
      ...directStarts(server.url),
      ...(folder === null ? {} : peerStarts(folder, server.url)),
    };
    for (const [name, start] of Object.entries(starts)) {
      const contender = await started(name, start);
      if (contender !== null) contenders.push(contender);
    }
    const figures: Figure[] = [];
    for (const trial of TRIALS) figures.push(...(await trialFigures(trial, contenders)));
    for (const contender of contenders) figures.push(...(await memoryFigures(contender)));
    return figures;
  } finally {
    for (const contender of contenders) await contender.stop();
    await capsem.stop();
    await server.stop();
  }
}

async function started(name: string, start: Start): Promise<Contender | null> {
  try {
    return await within(start(), START_TIMEOUT_MS, () => new Error("it does not answer"));
  } catch (thrown) {
    console.log(`tools: ${name} is not measured: ${messageOf(thrown)}`);
    return null;
  }
}

async function trialFigures(trial: Trial, contenders: readonly Contender[]): Promise<Figure[]> {
  const values = new Map<Contender, number[]>(contenders.map((contender) => [contender, []]));
  // The first round warms up.
  for (let round = 0; round <= trial.rounds; round += 1) {
    for (const [contender, all] of [...values]) {
      try {
        const found = await trial.run(contender);
        if (round > 0) all.push(...found);
      } catch (thrown) {
        console.log(
          `tools: ${contender.name} does not do "${trial.name}": ${messageOf(thrown).split("\n")[0]}`,
        );
        values.delete(contender);
        await forget(contender);
      }
    }
  }
  for (const contender of values.keys()) await checkOnce(contender);
  return [...values].map(([{ name }, all]) =>
    figure(`${name}: ${trial.name}`, trial.unit, all, trial.promise),
  );
}

/** Each call ran exactly once: the server has counted them. */
async function checkOnce(contender: Contender): Promise<void> {
  if (!contender.isCounted) return;
  const { calls, again } = JSON.parse(await contender.call("seen", { of: `${contender.name} ` })) as Seen;
  const expected = sent.get(contender) ?? 0;
  sent.delete(contender);
  assert(
    calls === expected && again === 0,
    `${contender.name} must run each of ${expected} calls once: ${calls}, ${again} again`,
  );
}

/** A call that failed may have run all the same: counting begins anew. */
async function forget(contender: Contender): Promise<void> {
  sent.delete(contender);
  await contender.call("seen", { of: `${contender.name} ` }).catch(() => undefined);
}

interface Seen {
  readonly calls: number;
  readonly again: number;
}

/** Resident memory of all its processes after ten thousand calls. */
async function memoryFigures(contender: Contender): Promise<Figure[]> {
  if (contender.pids.length === 0) return [];
  await perSecond(contender, count(10_000, 64), 16);
  const mib = contender.pids.flatMap(withChildren).reduce((sum, pid) => sum + residentMib(pid), 0);
  return [figure(`${contender.name}: after 10,000 calls`, "MiB RSS", [mib], "")];
}

function withChildren(pid: number): number[] {
  const words = readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").trim();
  return [pid, ...(words === "" ? [] : words.split(" ").map(Number).flatMap(withChildren))];
}

function residentMib(pid: number): number {
  return Number(/^VmRSS:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1]) / 1024;
}
