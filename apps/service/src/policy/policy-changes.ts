import type { PolicyEdit } from "@capsem/policy";
import type { ActContext } from "../act.ts";
import type { ActDraft, Bound, Boundary, Permit } from "../boundary/parts.ts";
import { POLICY_FILE_LIMITS } from "../limits.ts";
import { faultFailure } from "./faults.ts";
import { differencesOf, type PolicyDifference, wordOf } from "./policy-difference.ts";
import type { PolicyMove, PolicyStore } from "./policy-store.ts";

const CORP_RELOAD = "corp.reload";

/**
 * Changes of settings and rules as acts. Each key of a batch is judged and recorded by itself: a rule that guards one
 * key holds in whatever company the key comes. The batch is done inside the last of them, so one that is refused
 * leaves all undone.
 */
export class PolicyChanges {
  readonly #store: PolicyStore;
  readonly #boundary: Boundary;

  /** From now on what is changed by hand is recorded too. */
  constructor(store: PolicyStore, boundary: Boundary) {
    this.#store = store;
    this.#boundary = boundary;
    store.onHandEdit((move) => this.#note(move));
  }

  /** Throws as `PolicyStore.edit`, and what the boundary throws. */
  async edit(context: ActContext, edits: readonly PolicyEdit[]): Promise<void> {
    // A person is not asked about what cannot be done anyway.
    await this.#store.check(edits);
    const keys = [...new Map(edits.map((edit) => [keyOf(edit), edit])).values()];
    // Each is approved in the company that it comes in: they are done together or not at all.
    const bound = () => ({ change: edits });
    await this.#passAll(context, { keys, bound }, [], async (permits) => {
      const move = await this.#store.edit(edits);
      for (const [key, permit] of permits) permit.add(factsOf(move, key));
    });
  }

  /**
   * Reads every file again: where a person is asked, those that were there then. Throws Failure "invalid_input" with the
   * faults, "wrong_state" where they say something else by now, and then nothing has changed.
   */
  reload(context: ActContext): Promise<void> {
    const reload = { key: CORP_RELOAD, source: "corp", before: null, after: null } as const;
    const draft = draftOf(reload, "files read again", this.#digestsNow());
    let asked: string | null = null;
    const bound = async () => {
      asked = await this.#store.filesDigest();
      return { files: asked };
    };
    const act: ActDraft = { ...draft, does: "read the policy again", bound };
    return this.#boundary.pass(context, act, async (permit) => {
      const read = await (asked === null ? this.#store.refresh() : this.#store.refreshTo(asked));
      if (read.kind === "refused") throw faultFailure("read the policy again", read.faults);
      permit.add({ digest_after: read.state.snapshot.digest });
    });
  }

  async #passAll(
    context: ActContext,
    { keys: [edit, ...rest], bound }: Batch,
    permits: readonly (readonly [key: string, permit: Permit])[],
    work: (permits: readonly (readonly [key: string, permit: Permit])[]) => Promise<void>,
  ): Promise<void> {
    if (edit === undefined) return work(permits);
    const key = keyOf(edit);
    const before = wordOf(this.#store.state.user.main, key);
    // Of one that is refused the row says what was asked for.
    const change = { key, source: "user", before, after: wantedOf(edit) } as const;
    const draft = draftOf(change, titleOf(edit), this.#digestsNow());
    const act: ActDraft = { ...draft, does: DOES[edit.kind], bound };
    return this.#boundary.pass(context, act, (permit) =>
      this.#passAll(context, { keys: rest, bound }, [...permits, [key, permit]], work),
    );
  }

  /** What happened in files cannot be refused any more. */
  #note(move: PolicyMove): void {
    const differences = differencesOf(move);
    const digests = { digest_before: move.before.snapshot.digest, digest_after: move.after.snapshot.digest };
    const left = differences.length - POLICY_FILE_LIMITS.notedKeysMax;
    const title = left > 0 ? `changed by hand, with ${left} keys that are not listed` : "changed by hand";
    for (const difference of differences.slice(0, POLICY_FILE_LIMITS.notedKeysMax)) {
      this.#boundary.note(draftOf(difference, title, digests), "done");
    }
  }

  #digestsNow(): Digests {
    return { digest_before: this.#store.snapshot().digest, digest_after: null };
  }
}

interface Batch {
  /** Those that are left to pass. */
  readonly keys: readonly PolicyEdit[];
  /** All of it. */
  readonly bound: () => Bound;
}

interface Digests {
  readonly digest_before: string;
  readonly digest_after: string | null;
}

function draftOf(
  { key, source, before, after }: PolicyDifference,
  title: string,
  digests: Digests,
): ActDraft {
  return {
    type: "settings.change",
    vm: null,
    fields: { "settings.key": key, "settings.source": source },
    title: `${key}: ${title}`,
    row: { table: "policy_mutations", facts: { key, source, before, after, ...digests } },
  };
}

function keyOf(edit: PolicyEdit): string {
  return edit.kind === "set" || edit.kind === "reset" ? edit.key : edit.id;
}

const DOES: Readonly<Record<PolicyEdit["kind"], string>> = {
  set: "change the setting",
  reset: "reset the setting",
  put_rule: "write the rule",
  delete_rule: "delete the rule",
  put_server: "declare the tool server",
  delete_server: "forget the tool server",
};

/** What a setting, a rule or a server is to be, as `wordOf` says what it is. Null: nothing any more. */
function wantedOf(edit: PolicyEdit): string | null {
  switch (edit.kind) {
    case "set":
      return JSON.stringify(edit.value);
    case "put_rule":
      return tableText(edit.id, edit.fields);
    case "put_server":
      return tableText(edit.id, withoutHeaders(edit.fields));
    case "reset":
    case "delete_rule":
    case "delete_server":
      return null;
  }
}

function titleOf(edit: PolicyEdit): string {
  switch (edit.kind) {
    case "set":
      return `set to ${JSON.stringify(edit.value)}`;
    case "reset":
      return "back to its default";
    case "put_rule":
      return ruleTitle(edit.fields);
    case "put_server":
      return serverTitle(edit.fields);
    case "delete_rule":
    case "delete_server":
      return "removed";
  }
}

function tableText(id: string, fields: Readonly<Record<string, unknown>>): string {
  const lines = Object.entries(fields).map(([key, value]) => `${key} = ${JSON.stringify(value)}`);
  return [`[${id}]`, ...lines, ""].join("\n");
}

/** Headers by name alone: a value may be a secret that nobody registered. */
function withoutHeaders({ headers, ...fields }: Readonly<Record<string, unknown>>): Record<string, unknown> {
  if (typeof headers !== "object" || headers === null) return fields;
  return { ...fields, headers: Object.keys(headers) };
}

function serverTitle(given: Readonly<Record<string, unknown>>): string {
  const { url, ...more } = withoutHeaders(given);
  return `${String(url)}${inBrackets(more)}`;
}

/** All that it says, the long condition last: a rule that is switched off is no rule. */
function ruleTitle({ action, match, ...more }: Readonly<Record<string, unknown>>): string {
  return `${String(action)}${inBrackets(more)} ${String(match)}`.replace(/\s+/g, " ");
}

function inBrackets(fields: Readonly<Record<string, unknown>>): string {
  const words = Object.entries(fields).flatMap(([key, value]) =>
    value === undefined ? [] : [`${key} = ${JSON.stringify(value)}`],
  );
  return words.length === 0 ? "" : ` (${words.join(", ")})`;
}

/** What really changed: another edit may have come between the judgement and the writing. */
function factsOf({ before, after }: PolicyMove, key: string) {
  return {
    before: wordOf(before.user.main, key),
    after: wordOf(after.user.main, key),
    digest_before: before.snapshot.digest,
    digest_after: after.snapshot.digest,
  };
}
