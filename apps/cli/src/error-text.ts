import type { Failure } from "@capsem/base";

const ID = /\bvm_[a-z2-7]{16}\b/g;

/** A failure in the user's words: VMs by the names that were typed, and what to do about it. */
export function textOfFailure(failure: Failure, names: ReadonlyMap<string, string>): string {
  const text = failure.message.replace(ID, (id) => names.get(id) ?? id);
  if (failure.kind === "quota") return `${text}; delete or stop one: capsem list`;
  const stopped = /^Cannot (?:work in|run)\b.* "([a-z0-9_-]+)": it is stopped$/.exec(text);
  if (failure.kind === "wrong_state" && stopped !== null)
    return `${text}; start it: capsem start ${stopped[1]}`;
  return text;
}
