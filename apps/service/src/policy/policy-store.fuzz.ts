import { expect } from "vitest";
import { Random } from "../../../../packages/policy/src/testing/random.ts";
import { replaceFile } from "./replace-file.ts";
import type { TempPolicy } from "./testing/temp-policy.ts";

const KEYS = ["limits.running_max", "limits.idle_secs", "limits.pool_size", "profiles.preset", "no.such_key"];
const VALUES = [1, 2, 5, 16, 300, -1, "open", "locked-down", true];
const TEXTS = [
  "",
  "# nothing\n",
  "[limits]\nrunning_max = 3 # three\n",
  "[limits]\nrunning_max = 0\n",
  "[limits\n",
  '[profiles]\npreset = "open"\nrule_files = ["a.toml"]\n',
  '[profiles.rules.a]\naction = "block"\nmatch = "vm.name == \'x\'"\n',
];
const RULES = [
  '[profiles.rules.b]\naction = "ask"\nmatch = "vm.name == \'y\'"\n',
  '[profiles.rules.a]\naction = "ask"\nmatch = "vm.name == \'y\'"\n',
  "[limits]\n",
];

/**
 * Edits by route and by hand, disks that fail, in any order: after each step what is in force is what the files say,
 * where they can be read, and otherwise what was in force before. A refused edit leaves the file to the letter.
 */
export async function storeHolds(rig: TempPolicy, seed: number, steps: number): Promise<void> {
  const random = new Random(seed);
  let isBroken = false;
  const store = await rig.open({
    replace: (path, text, isCurrent) =>
      isBroken ? Promise.reject(new Error("the disk is broken")) : replaceFile(path, text, isCurrent),
  });
  let digest = store.snapshot().digest;
  for (let step = 0; step < steps; step++) {
    const what = `seed ${seed}, step ${step}`;
    isBroken = random.chance(10);
    if (random.chance(3)) {
      const [name, texts] = random.pick([
        ["settings.toml", TEXTS],
        ["a.toml", RULES],
        ["corp.toml", TEXTS.slice(0, 4)],
      ] as const);
      rig.write(name, random.pick(texts));
    }
    const before = textOf(rig);
    const isDone = await oneEdit();
    if (!isDone) expect(textOf(rig), what).toBe(before);
    await store.refresh();
    const files = await rig.open().catch(() => null);
    if (files === null)
      expect([store.snapshot().digest, store.faults.length > 0], what).toEqual([digest, true]);
    else expect([store.snapshot().digest, store.faults], what).toEqual([files.snapshot().digest, []]);
    digest = store.snapshot().digest;
  }

  async function oneEdit(): Promise<boolean> {
    const key = random.pick(KEYS);
    const match = `vm.name == '${random.below(5)}'`;
    const edit = random.pick([
      { kind: "set", key, value: random.pick(VALUES) },
      { kind: "reset", key },
      {
        kind: "put_rule",
        id: `profiles.rules.${random.pick(["a", "b", "c"])}`,
        fields: { action: "block", match },
      },
      { kind: "delete_rule", id: `profiles.rules.${random.pick(["a", "b", "c"])}` },
    ] as const);
    return store.edit(random.chance(3) ? [edit, { kind: "reset", key: "limits.idle_secs" }] : [edit]).then(
      () => true,
      () => false,
    );
  }
}

function textOf(rig: TempPolicy): string | null {
  try {
    return rig.read("settings.toml");
  } catch {
    return null;
  }
}
