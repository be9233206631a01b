import { mkdtempSync, readFileSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Failure } from "@capsem/base";
import { decide, securityEvent } from "@capsem/policy";
import { afterEach } from "vitest";
import type { ActContext } from "../../act.ts";
import type { ActDraft, Boundary, Permit } from "../../boundary/parts.ts";
import { type HomeLayout, homeLayout } from "../../home/layout.ts";
import { actContextOf } from "../../testing/act-context.ts";
import { openPolicy } from "../open-policy.ts";
import { policyPaths } from "../policy-state.ts";
import { PolicyStore, type PolicyStoreOptions } from "../policy-store.ts";

export const uid = process.getuid?.() ?? -1;

export interface TempPolicy {
  readonly home: string;
  readonly layout: HomeLayout;
  readonly log: Record<string, unknown>[];
  readonly machineCorp: string;
  /** As a person with an editor does. */
  write(name: string, text: string): void;
  read(name: string): string;
  open(over?: Partial<PolicyStoreOptions>): Promise<PolicyStore>;
  /** As the service does, with the migration. */
  openWhole(poolSize?: string): Promise<PolicyStore>;
}

/** Homes that go with the test that made them. */
export function useTempPolicies(): (files?: Readonly<Record<string, string>>) => TempPolicy {
  const homes: string[] = [];
  afterEach(() => {
    for (const home of homes.splice(0)) rmSync(home, { recursive: true, force: true });
  });
  return (files = {}) => {
    const home = realpathSync(mkdtempSync(join(tmpdir(), "capsem-policy-")));
    homes.push(home);
    const layout = homeLayout(home);
    const log: Record<string, unknown>[] = [];
    const machineCorp = join(home, "machine", "corp.toml");
    const keepLog = (level: string, message: string, fields = {}) =>
      void log.push({ level, message, ...fields });
    const write = (name: string, text: string) => writeFileSync(join(home, name), text, { mode: 0o600 });
    for (const [name, text] of Object.entries(files)) write(name, text);
    return {
      ...{ home, layout, log, machineCorp, write },
      read: (name) => readFileSync(join(home, name), "utf8"),
      open: (over = {}) =>
        PolicyStore.open({
          ...{ paths: policyPaths(layout, machineCorp), uid, log: keepLog },
          keepCopy: async (text) => write("settings.copy", text),
          ...over,
        }),
      openWhole: (poolSize) => openPolicy({ layout, uid, log: keepLog, machineCorp, poolSize }),
    };
  };
}

export const CONTEXT = actContextOf();

export interface RecordedAct {
  readonly key: string;
  readonly source: string;
  readonly title: string;
  readonly facts: Record<string, unknown>;
  readonly outcome: string;
}

/** Decides as the real one does, and keeps what it would store. */
export function fakeBoundary(store: PolicyStore): {
  readonly boundary: Boundary;
  readonly acts: RecordedAct[];
} {
  const acts: RecordedAct[] = [];
  const record = ({ row, title }: ActDraft, more: object, outcome: string) => {
    const facts = { ...row.facts, ...more } as Record<string, unknown>;
    acts.push({ key: String(facts.key), source: String(facts.source), title, facts, outcome });
  };
  const boundary: Boundary = {
    async pass<T>(_context: ActContext, draft: ActDraft, work: (permit: Permit) => Promise<T>) {
      const event = securityEvent(draft.type, { event_id: "000000000001" }, draft.fields);
      const decision = decide(store.snapshot(), event);
      if (decision.action === "block") {
        record(draft, {}, "blocked");
        throw new Failure("policy", `Cannot do it: ${decision.reason}`, {
          facts: { rule_id: decision.rule_id },
        });
      }
      const more = {};
      const permit = {
        eventId: "000000000001",
        decision,
        add: (facts: object) => void Object.assign(more, facts),
      };
      try {
        const value = await work(permit as Permit);
        record(draft, more, "done");
        return value;
      } catch (thrown) {
        record(draft, more, "failed");
        throw thrown;
      }
    },
    judgeResult: () => Promise.resolve(),
    noteResult: () => "allow",
    note: (draft, outcome) => record(draft, {}, outcome),
  };
  return { boundary, acts };
}

/** What was thrown, as a route would answer it. */
export async function refusal(promise: Promise<unknown>): Promise<{
  kind: string;
  message: string;
  faults: { code: string; line: number | null; file: string | null }[];
}> {
  try {
    await promise;
  } catch (thrown) {
    if (!(thrown instanceof Failure)) throw thrown;
    const { kind, message, facts } = thrown;
    return { kind, message, faults: (facts?.faults ?? []) as never };
  }
  throw new Error("it was not refused");
}
