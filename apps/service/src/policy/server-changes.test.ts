import { POLICY_LIMITS } from "@capsem/policy";
import { expect, test } from "vitest";
import { PolicyChanges } from "./policy-changes.ts";
import { CONTEXT, fakeBoundary, refusal, type TempPolicy, useTempPolicies } from "./testing/temp-policy.ts";

const temp = useTempPolicies();
const CANARY = "Bearer canary-5f0c";
const url = "https://tracker.test/mcp";
const put = (fields: Readonly<Record<string, unknown>>) =>
  ({ kind: "put_server", id: "mcp.servers.tracker", fields }) as const;

async function changing(rig: TempPolicy) {
  const store = await rig.open();
  const { boundary, acts } = fakeBoundary(store);
  return { store, acts, changes: new PolicyChanges(store, boundary) };
}

test("a declared server is in the file, in force and in the record, which has no value of a header", async () => {
  const rig = temp({ "settings.toml": "# mine\n" });
  const { store, acts, changes } = await changing(rig);
  await changes.edit(CONTEXT, [put({ url, headers: { Authorization: CANARY } })]);
  expect(rig.read("settings.toml")).toBe(
    `# mine\n\n[mcp.servers.tracker]\nurl = "${url}"\nheaders = { Authorization = "${CANARY}" }\n`,
  );
  expect(store.snapshot().servers.get("tracker")).toMatchObject({ url, source: "user", isLocked: false });
  expect(acts).toHaveLength(1);
  expect(acts[0]).toMatchObject({
    title: `mcp.servers.tracker: ${url} (headers = ["Authorization"])`,
    facts: {
      ...{ key: "mcp.servers.tracker", source: "user", before: null },
      after: `[mcp.servers.tracker]\nurl = "${url}"\nheaders = { Authorization = "[redacted]" }\n`,
    },
  });
  await changes.edit(CONTEXT, [{ kind: "delete_server", id: "mcp.servers.tracker" }]);
  expect(rig.read("settings.toml")).toBe("# mine\n");
  expect(store.snapshot().servers.size).toBe(0);
  expect(JSON.stringify(acts)).not.toContain("canary");
});

test("an edit by hand is noted, also where only the value of a header is another", async () => {
  const file = (value: string) =>
    `[mcp.servers.tracker]\nurl = "${url}"\nheaders = { Authorization = "${value}" }\n`;
  const rig = temp({ "settings.toml": file(CANARY) });
  const { store, acts } = await changing(rig);
  rig.write("settings.toml", file("Bearer canary-other"));
  await store.refresh();
  expect(acts).toMatchObject([{ facts: { key: "mcp.servers.tracker", before: file("[redacted]") } }]);
  expect(JSON.stringify(acts)).not.toContain("canary");
});

test("a rule that guards servers holds, and without it the same change is made", async () => {
  const guard = `[profiles.rules.guard]\naction = "block"\nmatch = 'settings.key.startsWith("mcp.servers.")'\n`;
  const guarded = temp({ "settings.toml": guard });
  const first = await changing(guarded);
  expect(await refusal(first.changes.edit(CONTEXT, [put({ url })]))).toMatchObject({ kind: "policy" });
  expect(guarded.read("settings.toml")).toBe(guard);
  const second = await changing(temp());
  await second.changes.edit(CONTEXT, [put({ url })]);
  expect(second.store.snapshot().servers.size).toBe(1);
});

test("what is wrong is refused with its kind before anybody is asked", async () => {
  const corp = `[mcp.servers.tracker]\nurl = "${url}"\n`;
  const locked = await changing(temp({ "corp.toml": corp }));
  expect(await refusal(locked.changes.edit(CONTEXT, [put({ url })]))).toMatchObject({ kind: "locked" });
  const { acts, changes } = await changing(temp());
  expect(await refusal(changes.edit(CONTEXT, [put({ url: "ftp://a.test" })]))).toMatchObject({
    ...{
      kind: "invalid_input",
      message: expect.stringMatching(/^Cannot declare the tool server: "url" takes/),
    },
  });
  const gone = { kind: "delete_server", id: "mcp.servers.tracker" } as const;
  expect(await refusal(changes.edit(CONTEXT, [gone]))).toMatchObject({ kind: "mcp_server_not_found" });
  expect(acts).toEqual([]);
});

test("two files that are too much together are refused, and what was in force stays", async () => {
  const many = (prefix: string, count: number) =>
    Array.from({ length: count }, (_, at) => `[mcp.servers.${prefix}${at}]\nurl = "${url}"\n`).join("");
  const half = POLICY_LIMITS.serversMax / 2;
  const rig = temp({ "settings.toml": many("a", half), "corp.toml": many("b", half) });
  const { store } = await changing(rig);
  rig.write("settings.toml", many("a", half + 1));
  await store.refresh();
  expect(store.faults).toMatchObject([{ code: "too_large", file: "settings.toml" }]);
  expect(store.snapshot().servers.size).toBe(POLICY_LIMITS.serversMax);
});
