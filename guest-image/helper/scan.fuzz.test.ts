import { randomInt } from "node:crypto";
import { createInterface } from "node:readline";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { encodeMcpMessage } from "../../packages/wire/src/mcp-frame.ts";
import { McpFrameReader } from "../../packages/wire/src/mcp-frame-reader.ts";
import { skipReason } from "./rig.ts";
import { TrafficRig } from "./testing/traffic-rig.ts";

/** A busy machine takes its time; who is done goes on at once. */
const SOON = { interval: 5, timeout: 10_000 };

const reason = skipReason();
if (reason !== undefined) console.log(`skipped: fuzzer of the thin client: ${reason}`);

const seed = Number(process.env.FUZZ_SEED ?? randomInt(2 ** 31));
const LINES = 3_000;
const FRAMES = 150;

/** mulberry32: small, seeded. */
function numbers(start: number): (below: number) => number {
  let state = start;
  return (below) => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) % below;
  };
}

const SCALARS = [
  "0",
  "-1.5e+3",
  "1E9",
  "true",
  "false",
  "null",
  '""',
  '"a\\"b"',
  '"\\u00e9\\n"',
  '"ü€😀"',
  "1.0",
  "123456789012345678901",
];
const KEYS = [
  '"id"',
  '"method"',
  '"params"',
  '"result"',
  '"requestId"',
  '"x"',
  '"jsonrpc"',
  '"m\\u0065thod"',
  '"ID"',
];
const SPACES = ["", "", "", " ", "\t", "\r"];

/** Something that is mostly a JSON-RPC message. */
function writeValue(below: (n: number) => number, depth: number): string {
  const space = () => SPACES[below(SPACES.length)] ?? "";
  if (depth > 4 || below(3) > 0) return SCALARS[below(SCALARS.length)] ?? "0";
  const parts = Array.from({ length: below(4) }, () => writeValue(below, depth + 1));
  if (below(2) === 0) return `[${space()}${parts.join(`${space()},${space()}`)}${space()}]`;
  return `{${parts.map((part) => `${space()}${KEYS[below(KEYS.length)]}${space()}:${space()}${part}`).join(",")}${space()}}`;
}

function writeLine(below: (n: number) => number): Buffer {
  const fields = [`"jsonrpc":"2.0"`];
  if (below(4) > 0)
    fields.push(`"id":${below(4) === 0 ? writeValue(below, 3) : (SCALARS[below(12)] ?? "1")}`);
  if (below(4) > 0) fields.push(`"method":${below(6) === 0 ? writeValue(below, 3) : '"tools/call"'}`);
  if (below(2) > 0) fields.push(`"params":${writeValue(below, 0)}`);
  const bytes = Buffer.from(`{${fields.join(",")}}`);
  for (let hits = below(3) === 0 ? 1 + below(2) : 0; hits > 0; hits--) {
    const byte = below(256);
    bytes[below(bytes.length)] = byte === 10 ? 11 : byte;
  }
  return bytes;
}

type Kind = "bad" | "refused" | "request" | "notification" | "answer";

/** What JSON.parse, and so any other end, makes of the line. */
function kindOf(line: Buffer): Kind {
  let value: unknown;
  try {
    value = JSON.parse(new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(line));
  } catch {
    return "bad";
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) return "refused";
  const fields = value as Record<string, unknown>;
  // A key that is spelled with escapes is not looked for.
  const text = line.toString();
  const has = (key: string) => Object.hasOwn(fields, key) && text.includes(`"${key}"`);
  const isId = typeof fields.id === "string" || typeof fields.id === "number";
  if (has("id") && !isId) return "refused";
  if (has("method") && typeof fields.method !== "string") return "refused";
  if (has("method")) return has("id") ? "request" : "notification";
  return has("id") ? "answer" : "refused";
}

describe.skipIf(reason !== undefined)("the thin client under noise", () => {
  let rig: TrafficRig;
  beforeAll(() => {
    rig = new TrafficRig();
  });
  beforeEach(() => rig.start());
  afterEach(() => rig.stop());
  afterAll(() => rig.remove());

  test(`each line is what JSON.parse says it is (seed ${seed})`, { timeout: 60_000 }, async () => {
    const below = numbers(seed);
    const client = rig.spawnClient();
    const said: { error: { code: number } }[] = [];
    const output = createInterface({ input: client.stdout as NodeJS.ReadableStream });
    output.on("line", (line) => said.push(JSON.parse(line)));
    const sent = Array.from({ length: LINES }, () => writeLine(below)).filter(
      (line) => line.toString().trim() !== "",
    );
    // Spelled with an escape, and plain too in another place: told apart by no simple rule, and harmless.
    const lines = sent.filter((line) => !line.includes("\\u0065thod"));
    client.stdin?.write(Buffer.concat(lines.flatMap((line) => [line, Buffer.from("\n")])));
    client.stdin?.write('{"id":"last","method":"last"}\n');
    const { streams } = await rig.firstLane();
    const stream = await streams.next();
    const reader = new McpFrameReader();
    const got: string[] = [];
    let skipped = 0;
    for (let isLast = false; !isLast; ) {
      let chunk = await stream.read();
      if (chunk === null) throw new Error(`the client ended (seed ${seed})`);
      if (skipped === 0) {
        skipped = chunk.indexOf(10) + 1;
        chunk = chunk.subarray(skipped);
      }
      reader.push(chunk, ({ text }) => {
        got.push(text);
        isLast = text.includes('"last"');
      });
    }
    const expected = lines.map((line) => ({ line: line.toString(), kind: kindOf(line) }));
    const passed = expected.filter(({ kind }) => kind === "request" || kind === "notification");
    // What ends a line in CR is spaces to JSON, and cut.
    const trim = (text: string) => text.replace(/\r+$/, "");
    expect(got.slice(0, -1), `seed ${seed}`).toEqual(passed.map(({ line }) => trim(line)));
    const codes = expected.flatMap(({ kind }) =>
      kind === "bad" ? [-32700] : kind === "refused" ? [-32600] : [],
    );
    await expect.poll(() => said.length, SOON).toBe(codes.length);
    expect(
      said.map(({ error }) => error.code),
      `seed ${seed}`,
    ).toEqual(codes);
    client.kill("SIGKILL");
  });

  test(`noise in place of frames ends a connection and never the client (seed ${seed})`, {
    timeout: 60_000,
  }, async () => {
    const below = numbers(seed);
    const client = rig.spawnClient();
    client.stdout?.resume();
    client.stdin?.write('{"id":0,"method":"x"}\n');
    const { streams } = await rig.firstLane();
    let next = streams.next();
    for (let round = 0; round < FRAMES; round++) {
      const stream = await next;
      const frames = Array.from({ length: 1 + below(4) }, () =>
        Buffer.concat(
          encodeMcpMessage({ streamId: below(5), processName: "host" }, writeLine(below).toString()),
        ),
      );
      const bytes = Buffer.concat(frames);
      for (let hits = below(4); hits > 0; hits--) bytes[below(bytes.length)] = below(256);
      const cut = below(bytes.length);
      // The client may close while we still write: that is one of the ends that are looked for.
      await stream.write(bytes.subarray(0, cut)).catch(() => undefined);
      await stream.write(bytes.subarray(cut)).catch(() => undefined);
      stream.reset("cancelled");
      // A call that meets the old connection's end is answered; the one after it makes a new one.
      let hasNext = false;
      next = streams.next();
      void next.then(() => {
        hasNext = true;
      });
      await expect
        .poll(() => client.stdin?.write(`{"id":${round},"method":"x"}\n`) && hasNext, {
          interval: 5,
          timeout: 10_000,
        })
        .toBe(true);
    }
    expect(client.exitCode).toBe(null);
  });
});
