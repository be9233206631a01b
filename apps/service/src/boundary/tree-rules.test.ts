import { expect, test } from "vitest";
import { errorOf } from "../testing/use-rigs.ts";
import { fileDraft } from "./file-draft.ts";
import { useBoundaryRigs } from "./testing/boundary-rig.ts";
import { contextOf } from "./testing/contexts.ts";
import { gate, outcomeOf, VM } from "./testing/gate.ts";

interface RuleWords {
  readonly action: string;
  readonly match: string;
  readonly priority?: number;
}

function rulesOf(rules: Readonly<Record<string, RuleWords>>): string {
  return Object.entries(rules)
    .map(
      ([name, { action, match, priority = 20 }]) =>
        `[profiles.rules.${name}]\naction = "${action}"\nmatch = '${match}'\npriority = ${priority}\n`,
    )
    .join("");
}

const block = (match: string, priority?: number): RuleWords =>
  priority === undefined ? { action: "block", match } : { action: "block", match, priority };
const allow = (match: string, priority = 10): RuleWords => ({ action: "allow", match, priority });

/** Of a tree at /workspace/site: what refuses it for its files; null: it is decided as a whole. */
async function refusedFor(act: "import" | "export", rules: Readonly<Record<string, RuleWords>>) {
  const { boundary, policy } = gate();
  policy.rules(rulesOf(rules));
  const draft = fileDraft(act, { vm: VM, path: "site", isTree: true });
  const outcome = await outcomeOf(boundary.pass(contextOf(), draft, async () => "done"));
  if (outcome.facts?.needs_files !== true) return null;
  expect(outcome).toMatchObject({ kind: "policy", message: expect.stringContaining("copy them one by one") });
  return outcome.facts.rule_id;
}

const GUARD = "profiles.rules.guard";

test.each<[string, Readonly<Record<string, RuleWords>>, string | null]>([
  ["its extension", { guard: block('file.import.ext == "exe"') }, GUARD],
  ["its name", { guard: block('file.import.name == ".env"') }, GUARD],
  ["its path", { guard: block('file.import.path.contains("/secrets/")') }, GUARD],
  ["its size", { guard: block("file.import.size > 1000") }, GUARD],
  ["that it has a size", { guard: block("has(file.import.size)") }, GUARD],
  ["its kind", { guard: block('file.import.mime_type == "text/html"') }, GUARD],
  ["its content", { guard: block('file.import.content.contains("KEY")') }, GUARD],
  ["the content of any act", { guard: block('file.content.contains("KEY")') }, GUARD],
  ["that it was cut", { guard: block("file.truncated") }, GUARD],
  [
    "one of several, asked of a person",
    { guard: { action: "ask", match: 'file.import.ext == "exe"' }, other: block('file.import.ext == "com"') },
    GUARD,
  ],
  ["nothing but the VM", { guard: block('event.type == "file.import" && vm.name == "other"') }, null],
  ["what goes out alone", { guard: block('file.export.ext == "pem"') }, null],
  [
    "the content of what goes out",
    { guard: block('file.export.ext == "pem" && file.content.contains("x")') },
    null,
  ],
  ["what it only detects", { guard: { action: "allow", match: 'file.import.ext == "exe"' } }, null],
  [
    "what an earlier rule lets in whatever it is",
    { guard: block('file.import.ext == "exe"'), first: allow('vm.name == "box"') },
    null,
  ],
  [
    "what a later rule lets in",
    { guard: block('file.import.ext == "exe"'), later: allow('vm.name == "box"', 30) },
    GUARD,
  ],
  [
    "an allowing rule that the files of it need not match",
    {
      guard: block('event.type == "file.import"', 1000),
      bare: allow('file.import.ext == ""'),
    },
    GUARD,
  ],
  [
    "a rule that asks of this very tree, which was approved for always",
    {
      guard: { action: "ask", match: 'file.import.path.startsWith("/workspace/")' },
      approved: allow('event.type == "file.import" && file.import.path == "/workspace/site"', 19),
    },
    null,
  ],
  [
    "another rule than the one that was approved",
    {
      asks: { action: "ask", match: 'file.import.path.startsWith("/workspace/")' },
      approved: allow('event.type == "file.import" && file.import.path == "/workspace/site"', 19),
      guard: block('file.import.ext == "exe"'),
    },
    GUARD,
  ],
])("a tree is refused for its files where a rule reads %s, or not", async (_what, rules, expected) => {
  expect(await refusedFor("import", rules)).toBe(expected);
  const turned = Object.entries(rules).map(([name, rule]) => {
    const match = rule.match.replace(/file\.(import|export)/g, (_all, act) =>
      act === "import" ? "file.export" : "file.import",
    );
    return [name, { ...rule, match }] as const;
  });
  expect(await refusedFor("export", Object.fromEntries(turned))).toBe(expected);
});

test("a rule that decides the tree by its path decides it: blocked it is blocked, asked it is asked once", async () => {
  const { boundary, policy, asks, ledger } = gate();
  const draft = fileDraft("import", { vm: VM, path: "site", isTree: true });
  policy.rules(rulesOf({ guard: block('file.import.path.startsWith("/workspace/")') }));
  const blocked = await outcomeOf(boundary.pass(contextOf(), draft, async () => "done"));
  expect(blocked).toMatchObject({
    facts: { rule_id: GUARD },
    message: `Cannot import the folder: blocked by ${GUARD}`,
  });
  policy.rules(rulesOf({ guard: { action: "ask", match: 'file.import.path.startsWith("/workspace/")' } }));
  const asked = outcomeOf(boundary.pass(contextOf(), draft, async () => "done"));
  await expect.poll(() => asks.held.length).toBe(1);
  asks.held[0]?.resolve("approved");
  expect(await asked).toEqual({ value: "done" });
  expect(ledger.of("fs_events").map(({ outcome }) => outcome)).toEqual(["blocked", "done"]);
});

const rigWith = useBoundaryRigs();

test("the attack: in a tree a file goes where a rule would not let it alone; with the gate it stays, and that is recorded", async () => {
  const rig = await rigWith();
  const id = await rig.create({ name: "box" });
  const bytes = Buffer.from("a tree");
  const copyIn = () => rig.client.call("PUT", `/vms/${id}/files/tree?path=site`, { bytes });
  const copyOut = () => rig.client.get(`/vms/${id}/files/tree?path=site`);
  expect([(await copyIn()).status, (await copyOut()).status]).toEqual([200, 200]);
  rig.ledger.clear();
  rig.policy.rules(
    rulesOf({ in: block('file.import.name == ".env"'), out: block('file.export.content.contains("KEY")') }),
  );
  rig.spy(id);
  for (const [reply, rule] of [
    [await copyIn(), "profiles.rules.in"],
    [await copyOut(), "profiles.rules.out"],
  ] as const) {
    expect(errorOf(reply)).toMatchObject({ kind: "policy", status: 403, rule_id: rule, needs_files: true });
  }
  expect(rig.calls).toEqual([]);
  expect(rig.ledger.of("fs_events", id)).toMatchObject([
    { act: "import", is_tree: true, outcome: "blocked", decision: "block", rule_id: "profiles.rules.in" },
    { act: "export", is_tree: true, outcome: "blocked", decision: "block", rule_id: "profiles.rules.out" },
  ]);
  expect(rig.ledger.of("security_decision_events", id).map(({ action }) => action)).toEqual([
    "block",
    "block",
  ]);
  // File by file what no rule is about goes, and what one is about does not.
  const put = (name: string) =>
    rig.client.call("PUT", `/vms/${id}/files/content?path=${name}`, { bytes: Buffer.from("x") });
  expect([(await put("site.txt")).status, (await put(".env")).status]).toEqual([200, 403]);
});
