import { duplexPair } from "node:stream";
import { genesisHead } from "@capsem/api/ledger-chain";
import { type Deferred, defer } from "@capsem/base";
import { createPeer } from "@capsem/rpc";
import { expect, onTestFinished, test } from "vitest";
import { body, decision } from "../testing/ledger-rig.ts";
import { ChainFollower } from "./chain-follower.ts";
import { LedgerFeed } from "./ledger-feed.ts";
import { LedgerLink } from "./ledger-link.ts";

const LEDGER = "vm_aaaaaaaaaaaaaaaa";

interface Gate {
  readonly came: Deferred<void>;
  readonly passes: Deferred<void>;
}

function gate(): Gate {
  return { came: defer(), passes: defer() };
}

/** A feed on a link whose other end says yes to everything, and waits at a gate where there is one. */
function rig({ hasFiles = false } = {}) {
  const calls: string[] = [];
  const gates: { open?: Gate; close?: Gate } = {};
  const [ours, theirs] = duplexPair();
  const chain = new ChainFollower(LEDGER);
  // What it says of its head is another test's.
  chain.follow = async () => undefined;
  const head = { rows: 0, head: genesisHead(LEDGER) };
  const at = async (name: "open" | "close") => {
    calls.push(name);
    const known = gates[name];
    delete gates[name];
    known?.came.resolve();
    await known?.passes.promise;
  };
  const there = createPeer({
    role: "guest",
    duplex: theirs,
    handlers: {
      "ledger.open": async () => {
        await at("open");
        return { ...head, bytes: 0, interrupted: 0 };
      },
      "ledger.close": async () => {
        await at("close");
        return {};
      },
      "ledger.append": async () => {
        calls.push("append");
        return { ...head, bytes: 0 };
      },
    },
  });
  const here = createPeer({ role: "host", duplex: ours, handlers: {} });
  const link = new LedgerLink({ producer: here, reader: here, maintainer: here }, () => performance.now());
  let generations = 0;
  const closed: string[] = [];
  const feed = new LedgerFeed(LEDGER, {
    link: () => link,
    away: () => ({ ms: 0, waitMs: 2_000, reason: null }),
    newGeneration: () => `g${++generations}`,
    checkpoint: async () => null,
    hasFiles: () => hasFiles,
    bytesMax: () => 1024 ** 3,
    isDiskFull: () => false,
    onHead: () => undefined,
    keepHead: async () => undefined,
    onClosed: (ledger) => void closed.push(ledger),
    chain,
    handOn: () => undefined,
    monotonicMs: () => performance.now(),
    log: () => undefined,
    weight: { characters: 0 },
  });
  onTestFinished(() => {
    here.close();
    there.close();
  });
  return { feed, calls, gates, closed, channel: ours };
}

test("a walk that is asked for while its files are being closed is made", async () => {
  const { feed, calls, gates, closed } = rig({ hasFiles: true });
  await feed.ready();
  const closing = gate();
  gates.close = closing;
  feed.closeWhenIdle();
  await closing.came.promise;
  const whole = feed.checkWhole();
  closing.passes.resolve();
  await whole;
  expect(calls).toEqual(["open", "close", "open"]);
  expect(closed).toEqual([]);
});

test("whoever closes a ledger that is just being opened waits until it is closed", async () => {
  const { feed, gates, calls } = rig();
  const opening = gate();
  gates.open = opening;
  const ready = feed.ready();
  await opening.came.promise;
  let isClosed = false;
  const close = feed.close().then(() => {
    isClosed = true;
  });
  await new Promise(setImmediate);
  expect(isClosed).toBe(false);
  opening.passes.resolve();
  await Promise.all([close, ready]);
  expect(calls).toEqual(["open", "close"]);
});

test("while its files are another's nothing opens them, and what came meanwhile is in the next ledger", async () => {
  const { feed, calls, gates } = rig();
  feed.append([body(1)]);
  await feed.flush();
  const closing = gate();
  gates.close = closing;
  const lent = feed.lend();
  await closing.came.promise;
  feed.append([body(2)]);
  const ready = feed.ready();
  closing.passes.resolve();
  await lent;
  for (let turn = 0; turn < 20; turn++) await new Promise(setImmediate);
  expect(calls).toEqual(["open", "append", "close"]);
  feed.reset();
  await Promise.all([ready, feed.flush()]);
  expect(calls).toEqual(["open", "append", "close", "open", "append"]);
});

test("an intent is on its channel before what its boundary begins then is on another", async () => {
  const { feed, channel } = rig();
  await feed.ready();
  const [owner, far] = duplexPair();
  const peer = createPeer({ role: "host", duplex: owner, handlers: {} });
  const there = createPeer({ role: "guest", duplex: far, handlers: { "job.start": async () => ({}) } });
  const written: string[] = [];
  for (const [name, duplex] of [["ledger", channel] as const, ["owner", owner] as const]) {
    const write = duplex.write.bind(duplex) as (...given: unknown[]) => boolean;
    duplex.write = (...given: unknown[]) => {
      written.push(name);
      return write(...given);
    };
  }
  const recordIntent = async () => feed.append([decision("a")]);
  await recordIntent();
  await peer.call("job.start", {});
  expect(written[0]).toBe("ledger");
  peer.close();
  there.close();
});
