import { defer } from "@capsem/base";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { POLICY_TIMES } from "../limits.ts";
import type { PolicyHolder } from "./policy-holders.ts";
import type { PolicyStore } from "./policy-store.ts";
import { useTempPolicies } from "./testing/temp-policy.ts";

const temp = useTempPolicies();
beforeEach(() => void vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] }));
afterEach(() => void vi.useRealTimers());

const EDIT = [{ kind: "set", key: "limits.running_max", value: 5 }] as const;

interface Seen {
  readonly digests: string[];
  readonly replaced: string[];
  isAborted: boolean;
}

function holder(seen: Seen, accept: () => Promise<void>, replace = () => Promise.resolve()): PolicyHolder {
  return {
    name: "proxy",
    accept(snapshot, signal) {
      seen.digests.push(snapshot.digest);
      signal.addEventListener("abort", () => {
        seen.isAborted = true;
      });
      return accept();
    },
    replace(why) {
      seen.replaced.push(why.message);
      return replace();
    },
  };
}

const fresh = (): Seen => ({ digests: [], replaced: [], isAborted: false });

/** Files take real time; the clock of holders is turned by hand, when they have been told. */
async function until(isSo: () => boolean): Promise<void> {
  while (!isSo()) await new Promise((resolve) => setImmediate(resolve));
}

async function isSettled(promise: Promise<unknown>): Promise<boolean> {
  let settled = false;
  void promise.then(() => (settled = true));
  for (let turn = 0; turn < 20; turn++) await new Promise((resolve) => setImmediate(resolve));
  return settled;
}

test("a change returns when every holder has the new snapshot, and not before", async () => {
  const store = await temp().open();
  const seen = fresh();
  const accepted = defer<void>();
  store.hold(holder(seen, () => accepted.promise));
  const edit = store.edit(EDIT);
  await until(() => seen.digests.length > 0);
  // What the service itself decides, it decides by the new one already.
  expect(seen.digests).toEqual([store.snapshot().digest]);
  expect(await isSettled(edit)).toBe(false);
  accepted.resolve();
  await edit;
  expect(seen).toMatchObject({ replaced: [], isAborted: false });
});

const hangs = () => defer<void>().promise;
const fails = () => Promise.reject(new Error("its channel is gone"));
const throws = (): Promise<void> => {
  throw new Error("a bug");
};

test.each([
  ["does not answer", hangs, "Timed out after 1000 ms", POLICY_TIMES.holderTimeoutMs],
  ["fails", fails, "its channel is gone", 0],
  ["throws", throws, "a bug", 0],
])("a holder that %s is replaced, once, and the change returns", async (_what, accept, why, waitMs) => {
  const store = await temp().open();
  const [bad, good] = [fresh(), fresh()];
  store.hold(holder(bad, accept));
  store.hold(holder(good, () => Promise.resolve()));
  const edit = store.edit(EDIT);
  await until(() => bad.digests.length > 0);
  if (waitMs > 0) {
    vi.advanceTimersByTime(waitMs - 1);
    expect(await isSettled(edit)).toBe(false);
    vi.advanceTimersByTime(1);
  }
  await edit;
  expect(bad).toEqual({
    digests: good.digests,
    replaced: [`Cannot give "proxy" new rules: ${why}`],
    isAborted: true,
  });
  await store.edit([{ kind: "reset", key: "limits.running_max" }]);
  expect([bad.digests.length, bad.replaced.length, good.digests.length]).toEqual([1, 1, 2]);
});

test("a replacement that hangs is said and does not hold up the change for ever", async () => {
  const rig = temp();
  const store = await rig.open();
  const seen = fresh();
  store.hold(holder(seen, fails, hangs));
  const edit = store.edit(EDIT);
  await until(() => seen.replaced.length > 0);
  vi.advanceTimersByTime(POLICY_TIMES.replaceTimeoutMs);
  await edit;
  expect(rig.log.at(-1)).toMatchObject({ level: "error", message: "a holder of rules cannot be replaced" });
});

test("one that left is told nothing; one that leaves while it is asked is not replaced", async () => {
  const store = await temp().open();
  const [gone, leaves] = [fresh(), fresh()];
  store.hold(holder(gone, hangs))();
  const leave = store.hold(holder(leaves, hangs));
  const edit = store.edit(EDIT);
  await until(() => leaves.digests.length > 0);
  leave();
  vi.advanceTimersByTime(POLICY_TIMES.holderTimeoutMs);
  await edit;
  expect([gone.digests, leaves.replaced]).toEqual([[], []]);
});

test("an edit by hand reaches holders as well", async () => {
  const rig = temp();
  const store: PolicyStore = await rig.open();
  const seen = fresh();
  store.hold(holder(seen, () => Promise.resolve()));
  rig.write("settings.toml", "[limits]\nrunning_max = 5\n");
  await store.refresh();
  await store.refresh();
  expect(seen.digests).toEqual([store.snapshot().digest]);
});
