import { apiFailure, type PolicyFaultInfo } from "@capsem/api";
import { Failure } from "@capsem/base";
import {
  type PatchedText,
  type PolicyEdit,
  type PolicySnapshot,
  patchSlices,
  type Settings,
} from "@capsem/policy";
import type { PolicySource } from "../boundary/parts.ts";
import { POLICY_FILE_LIMITS } from "../limits.ts";
import type { ServiceLog } from "../log/service-log.ts";
import { faultFailure, faultInfo, faultLine, startFailure } from "./faults.ts";
import { inTurns, nextTurn } from "./next-turn.ts";
import { type PolicyHolder, PolicyHolders } from "./policy-holders.ts";
import {
  filesOf,
  isCurrent,
  type PolicyPaths,
  type PolicyState,
  type RefusedState,
  readState,
  type StateRead,
  sha256,
} from "./policy-state.ts";
import { type ReplaceFile, replaceFile } from "./replace-file.ts";

export interface PolicyStoreOptions {
  readonly paths: PolicyPaths;
  readonly uid: number;
  readonly log: ServiceLog;
  /** The environment's word, which wins over every file. */
  readonly poolSize?: number;
  /** Keeps a copy of a settings file whose comments could not be kept. */
  readonly keepCopy: (text: string) => Promise<void>;
  /** For fault injection. */
  readonly replace?: ReplaceFile;
}

/** One move from what was in force to what is. */
export interface PolicyMove {
  readonly before: PolicyState;
  readonly after: PolicyState;
}

/** Told of moves that nobody asked the service for: files that were changed by hand. Never throws. */
export type OnHandEdit = (move: PolicyMove) => void;

/**
 * Settings and rules: what the files say, compiled. One thing happens at a time; a snapshot never changes, a change
 * makes another one, and returns when nobody decides by the old one any more.
 */
export class PolicyStore implements PolicySource {
  readonly #options: PolicyStoreOptions;
  readonly #holders: PolicyHolders;
  readonly #listeners = new Set<OnHandEdit>();
  #state: PolicyState;
  #settings: Settings;
  /** Of the last read, where it was refused. */
  #refused: RefusedState | null = null;
  /** Files that the last read looked at, also where it refused them. */
  #files: readonly string[];
  #last: Promise<unknown> = Promise.resolve();
  /** The text that a batch makes of a state: it is checked before it is judged, and made after. */
  readonly #patched = new WeakMap<readonly PolicyEdit[], { of: PolicyState; patched: PatchedText }>();

  private constructor(options: PolicyStoreOptions, state: PolicyState) {
    this.#options = options;
    this.#holders = new PolicyHolders(options.log);
    this.#state = state;
    this.#settings = settingsOf(state.snapshot, options.poolSize);
    this.#files = filesOf(state, options.paths);
  }

  /** Throws Failure "settings_invalid" with every fault of every file. */
  static async open(options: PolicyStoreOptions): Promise<PolicyStore> {
    const read = await readState(options.paths, options.uid);
    if (read.kind === "refused") throw startFailure(read.faults);
    return new PolicyStore(options, read.state);
  }

  snapshot(): PolicySnapshot {
    return this.#state.snapshot;
  }

  /** Every setting as it holds now. */
  settings(): Settings {
    return this.#settings;
  }

  get state(): PolicyState {
    return this.#state;
  }

  /** Of files that were changed by hand and cannot be used: what was in force before still is. */
  get faults(): readonly PolicyFaultInfo[] {
    return this.#refused?.faults ?? [];
  }

  get corpFaults(): readonly PolicyFaultInfo[] {
    return this.#refused?.corpFaults ?? [];
  }

  /** Whose files they must be, beside root's. */
  get uid(): number {
    return this.#options.uid;
  }

  /** What decides, for who watches it. */
  get files(): readonly string[] {
    return this.#files;
  }

  /** From now on the holder is told. It takes the snapshot of this moment by itself. Returns how to leave. */
  hold(holder: PolicyHolder): () => void {
    return this.#holders.add(holder);
  }

  onHandEdit(listener: OnHandEdit): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  /** Throws what `edit` would, and does nothing. */
  check(edits: readonly PolicyEdit[]): Promise<void> {
    return this.#alone(async () => {
      await this.#takeFilesOrThrow();
      await this.#patch(edits);
      await nextTurn();
    });
  }

  /**
   * Makes all edits or none, and returns when they hold everywhere. A file that was changed by hand is read first.
   * Throws Failure "invalid_input", "locked" or "rule_not_found" with `facts.faults`; then nothing has changed.
   */
  edit(edits: readonly PolicyEdit[]): Promise<PolicyMove> {
    return this.#alone(async () => {
      for (let tries = 0; tries < POLICY_FILE_LIMITS.writeTries; tries++) {
        await this.#takeFilesOrThrow();
        const move = await this.#write(edits);
        if (move !== null) return move;
      }
      const { settings } = this.#options.paths;
      throw apiFailure("unavailable", `Cannot write "${settings}": somebody else keeps writing it`);
    });
  }

  /** Reads all files again. Refused ones change nothing but `faults`. Returns when what they say holds everywhere. */
  refresh(): Promise<StateRead> {
    return this.#alone(() => this.#takeFiles());
  }

  /** Names what all files say at this moment, to the letter. */
  filesDigest(): Promise<string> {
    return this.#alone(async () => digestOf(await readState(this.#options.paths, this.#options.uid)));
  }

  /** As `refresh`, of files that say what `digest` named. Throws Failure "wrong_state" when they say something else. */
  refreshTo(digest: string): Promise<StateRead> {
    const check = (read: StateRead) => {
      if (digestOf(read) === digest) return;
      const text = "Cannot read the policy again: its files do not say any more what was approved";
      throw apiFailure("wrong_state", text);
    };
    return this.#alone(() => this.#takeFiles(check));
  }

  /** Null when somebody wrote the file meanwhile. */
  async #write(edits: readonly PolicyEdit[]): Promise<PolicyMove | null> {
    const { paths, uid, replace = replaceFile, keepCopy, log } = this.#options;
    const before = this.#state;
    const patched = await this.#patch(edits);
    await nextTurn();
    // Read with the files that it names, as the next start would: what that refuses is not written.
    const known = { user: before.user.parsed, corp: before.corp.parsed };
    const wanted = new Map(known.user).set(paths.settings, patched);
    const next = await readState(paths, uid, { text: patched.text, user: wanted, corp: known.corp });
    if (next.kind === "refused") throw faultFailure(doing(edits), next.faults);
    if (!patched.keptComments) {
      log("warning", "comments of the settings file could not be kept", { file: paths.settings });
      await keepCopy(before.user.text ?? "");
    }
    const isStill = async () => isCurrent(before, paths, uid);
    if (!(await replace(paths.settings, patched.text, isStill))) return null;
    await this.#adopt(next.state);
    return { before, after: next.state };
  }

  async #patch(edits: readonly PolicyEdit[]): Promise<PatchedText> {
    const of = this.#state;
    const known = this.#patched.get(edits);
    if (known?.of === of) return known.patched;
    const patched = await patchedText(of, edits);
    this.#patched.set(edits, { of, patched });
    return patched;
  }

  async #takeFilesOrThrow(): Promise<void> {
    const fresh = await this.#takeFiles();
    if (fresh.kind === "refused") throw faultFailure("change the settings", fresh.faults);
  }

  /** `check` may refuse what was read before anything of it counts. */
  async #takeFiles(check: (read: StateRead) => void = () => undefined): Promise<StateRead> {
    const { paths, uid, log } = this.#options;
    const before = this.#state;
    if (isCurrent(before, paths, uid)) {
      check({ kind: "ok", state: before });
      this.#refused = null;
      return { kind: "ok", state: before };
    }
    const read = await readState(paths, uid, { user: before.user.parsed, corp: before.corp.parsed });
    check(read);
    if (read.kind === "refused") {
      this.#files = [...new Set([...this.#files, ...read.paths])];
      if (JSON.stringify(read.faults) !== JSON.stringify(this.faults)) {
        log("warning", "changed settings cannot be used; what was in force still is", {
          faults: read.faults.slice(0, POLICY_FILE_LIMITS.faultsLogged).map(faultLine),
          count: read.faults.length,
        });
      }
      this.#refused = read;
      return read;
    }
    this.#refused = null;
    await this.#adopt(read.state);
    for (const listener of this.#listeners) listener({ before, after: read.state });
    log("info", "settings were changed by hand", { digest: read.state.snapshot.digest });
    return read;
  }

  async #adopt(state: PolicyState): Promise<void> {
    this.#state = state;
    this.#settings = settingsOf(state.snapshot, this.#options.poolSize);
    this.#files = filesOf(state, this.#options.paths);
    await this.#holders.tell(state.snapshot);
  }

  /** One after another: a later one sees what an earlier one wrote. */
  #alone<T>(work: () => Promise<T>): Promise<T> {
    const done = this.#last.then(work, work);
    this.#last = done.catch(() => undefined);
    return done;
  }
}

function digestOf(read: StateRead): string {
  if (read.kind === "refused") return sha256(JSON.stringify(["refused", read.paths, read.faults]));
  const { user, corp } = read.state;
  return sha256(JSON.stringify([corp.path, [...user.texts], [...corp.texts]]));
}

/** Throws when an edit cannot be made. */
async function patchedText({ user, corp }: PolicyState, edits: readonly PolicyEdit[]): Promise<PatchedText> {
  const elsewhere = new Set([...user.fileOf].flatMap(([id, file]) => (file === user.name ? [] : [id])));
  const patched = await inTurns(
    patchSlices(user.text ?? "", { user: user.main, corp: corp.whole, elsewhere }, edits),
  );
  if (patched.kind === "ok") return patched.value;
  throw faultFailure(
    doing(edits),
    patched.faults.map((fault) => faultInfo(fault, fault.at === undefined ? null : user.name)),
  );
}

function doing(edits: readonly PolicyEdit[]): string {
  if (edits.every(({ kind }) => kind === "put_rule")) return "write the rule";
  if (edits.every(({ kind }) => kind === "delete_rule")) return "delete the rule";
  return edits.every(({ kind }) => kind === "put_server") ? "declare the tool server" : "change the settings";
}

function settingsOf({ settings }: PolicySnapshot, poolSize: number | undefined): Settings {
  return poolSize === undefined ? settings.values : { ...settings.values, "limits.pool_size": poolSize };
}

/** The pool size that the environment asks for. Throws Failure "settings_invalid". */
export function poolSizeOf(text: string | undefined, most: number): number | undefined {
  if (text === undefined || text === "") return undefined;
  const size = Number(text);
  if (Number.isInteger(size) && size >= 0 && size <= most) return size;
  throw new Failure("settings_invalid", `Cannot use pool size "${text}": it is not 0..${most}`);
}
