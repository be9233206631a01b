import { Failure } from "@capsem/base";
import {
  compileSnapshot,
  type Digest,
  type PolicyLayer,
  type PolicySnapshot,
  parseLayer,
} from "@capsem/policy";

/** The rules in force, as the service last gave them. */
export class PolicyState {
  readonly #digest: Digest;
  #snapshot: PolicySnapshot | undefined;

  constructor(digest: Digest) {
    this.#digest = digest;
  }

  get isSet(): boolean {
    return this.#snapshot !== undefined;
  }

  /** Throws before the first rules have come: without any, nothing is done. */
  get snapshot(): PolicySnapshot {
    if (this.#snapshot === undefined) throw new Failure("internal", "Cannot judge: no rules have come yet");
    return this.#snapshot;
  }

  /**
   * Puts rules into force, whole and at once. Throws Failure("policy_invalid") when the texts do not come to the
   * digest that the service has of them: two that judge by other rules are worse than one that does not start.
   */
  set(user: string, corp: string, digest: string): void {
    const snapshot = compileSnapshot(
      { user: layerOf("user", user), corp: layerOf("corp", corp) },
      this.#digest,
    );
    if (snapshot.digest !== digest) {
      throw new Failure(
        "policy_invalid",
        `Cannot use the rules: they come to ${snapshot.digest}, not ${digest}`,
      );
    }
    this.#snapshot = snapshot;
  }
}

function layerOf(source: "user" | "corp", text: string): PolicyLayer {
  const parsed = parseLayer(source, text);
  if (parsed.kind === "ok") return parsed.value;
  const [fault] = parsed.faults;
  throw new Failure("policy_invalid", `Cannot read the rules of ${source}: ${fault?.message ?? "a fault"}`);
}
