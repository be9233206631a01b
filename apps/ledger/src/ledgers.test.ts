import { messageOfRows } from "@capsem/api/ledger-row";
import { defer } from "@capsem/base";
import { hasLedger, LedgerWriter } from "@capsem/ledger";
import { expect, onTestFinished, test } from "vitest";
import { act } from "../../../packages/ledger/src/testing/rows.ts";
import { Ledgers } from "./ledgers.ts";
import { LEDGER, newFolder } from "./testing/fixture.ts";
import type { WriterCalls, WriterVerb } from "./writer-message.ts";

/** Ledgers on a writer without its thread, whose keeper lets files go when the test says so. */
function rig() {
  const root = newFolder();
  const writer = new LedgerWriter({ root, bytesMax: 1024 ** 3, now: Date.now });
  const asked = defer<void>();
  const lets = defer<void>();
  const run = (verb: WriterVerb, params: never): unknown => {
    switch (verb) {
      case "open":
        return writer.open(params);
      case "append": {
        const [end] = writer.append([params]);
        if (end?.kind !== "taken") throw end?.failure;
        return end.standing;
      }
      case "release":
        return writer.release((params as WriterCalls["release"]["params"]).ledger);
      default:
        throw new Error(`not of this test: ${verb}`);
    }
  };
  const ledgers = new Ledgers({
    root,
    writer: {
      call: async <V extends WriterVerb>(verb: V, params: WriterCalls[V]["params"]) =>
        run(verb, params as never) as WriterCalls[V]["result"],
    },
    keeper: {
      touched: () => undefined,
      release: async () => {
        asked.resolve();
        await lets.promise;
      },
    },
    log: () => undefined,
    now: Date.now,
  });
  onTestFinished(() => {
    ledgers.end();
    writer.end();
  });
  return { root, ledgers, writer, asked: asked.promise, letGo: () => lets.resolve() };
}

test.each(["archive", "remove"] as const)(
  "a ledger that is opened in the midst of its %s is a new one, and its rows are in place",
  async (what) => {
    const { root, ledgers, writer, asked, letGo } = rig();
    const { signal } = new AbortController();
    const open = (generation: string) =>
      ledgers.open("service", { ledger: LEDGER, generation, checkpoint: null, whole: false }, signal);
    const append = (generation: string) =>
      ledgers.append("service", { ledger: LEDGER, generation, first: 1, ...messageOfRows(act({ n: 1 })) });
    await open("g1");
    await append("g1");
    writer.close("service", LEDGER);
    const moved = ledgers[what](LEDGER);
    await asked;
    const opened = open("g2");
    letGo();
    const [{ rows }] = await Promise.all([opened, moved]);
    expect(rows).toBe(0);
    await append("g2");
    expect(hasLedger(root, LEDGER)).toBe(true);
  },
);
