import { apiFailure } from "@capsem/api";
import type { PolicyEdit } from "@capsem/policy";
import type { CredentialBook } from "./credential-book.ts";
import type { SecretRedactor } from "./redactor.ts";

interface Known {
  readonly redactor: SecretRedactor;
  readonly credentials: Pick<CredentialBook, "list">;
}

/**
 * Rules and settings lie in a file that people read and copy: what a route writes there holds no registered secret.
 * What takes something away may always be done. Throws Failure "invalid_input", which names the credential alone.
 */
export function refuseSecrets(edits: readonly PolicyEdit[], { redactor, credentials }: Known): void {
  const [ref] = redactor.refsIn(JSON.stringify(edits.map(writtenBy)));
  if (ref === undefined) return;
  const name = credentials.list().find((each) => each.ref === ref)?.name;
  const whose = name === undefined ? "a credential that is being registered" : `credential "${name}"`;
  throw apiFailure(
    "invalid_input",
    `Cannot write rules or settings: the text holds the secret of ${whose}; rules are stored in clear`,
  );
}

function writtenBy(edit: PolicyEdit): readonly unknown[] {
  switch (edit.kind) {
    case "set":
      return [edit.key, edit.value];
    case "put_rule":
    case "put_server":
      return [edit.id, ...Object.values(edit.fields)];
    case "reset":
    case "delete_rule":
    case "delete_server":
      return [];
  }
}
