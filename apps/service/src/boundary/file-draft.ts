import { posix } from "node:path";
import { apiFailure } from "@capsem/api";
import type { EventFields, PolicySnapshot } from "@capsem/policy";
import type { BodyBytes } from "../http/handler.ts";
import { HTTP_LIMITS } from "../limits.ts";
import { BOUNDARY_LIMITS } from "./limits.ts";
import type { ActDraft, VmFacts } from "./parts.ts";

type FileAct = "import" | "export" | "delete" | "mkdir" | "rename";

interface FileAsked {
  readonly vm: VmFacts;
  readonly path: string;
  readonly toPath?: string;
  readonly isTree?: boolean;
  readonly fields?: EventFields;
  /** What is asked beside the path, for what an approval is bound to. */
  readonly bound?: unknown;
}

/** A file act as rules see it: by its path from the root, whichever way it was written. */
export function fileDraft(
  act: FileAct,
  { vm, path, toPath, isTree = false, fields, bound }: FileAsked,
): ActDraft {
  const from = inRoot(path);
  const to = toPath === undefined ? null : inRoot(toPath);
  return {
    type: TYPES[act],
    vm,
    fields: { ...pathFields(act, from, to), ...fields },
    title: `${act} ${from}${to === null ? "" : ` to ${to}`}`,
    row: {
      table: "fs_events",
      facts: { act, path: from, to_path: to, is_tree: isTree, bytes: null, sha256: null },
    },
    bound: () => bound ?? null,
    // Whoever cannot go on in a VM must be able to get their files out of it.
    ...(act === "export" ? { needsNoRoom: true } : {}),
  };
}

/** A file that is written; its first bytes are looked at only where a rule in force reads them. */
export async function importDraft(
  asked: FileAsked,
  bytes: BodyBytes,
  snapshot: PolicySnapshot,
  signal: AbortSignal,
): Promise<ActDraft> {
  const isContentRead = snapshot.reads("file.content") || snapshot.reads("file.import.content");
  const content = isContentRead
    ? await bytes.peek(BOUNDARY_LIMITS.contentBytesMax, HTTP_LIMITS.fileBodyBytesMax, signal)
    : null;
  const isWhole = content !== null && content.length < BOUNDARY_LIMITS.contentBytesMax;
  const size = bytes.declaredBytes ?? (isWhole ? content.length : null);
  if (size === null && snapshot.reads("file.import.size")) {
    throw apiFailure(
      "invalid_input",
      "Cannot import the file: a rule reads its size, and the upload has no content-length",
    );
  }
  return fileDraft("import", {
    ...asked,
    fields: {
      ...(size === null ? {} : { "file.import.size": size }),
      ...(content === null ? {} : { "file.import.content": content }),
    },
  });
}

/** Whether a file must be opened before its export can be judged. */
export function isExportRead(snapshot: PolicySnapshot): boolean {
  return (["file.content", "file.export.content", "file.export.size"] as const).some(snapshot.reads);
}

const TYPES = {
  import: "file.import",
  export: "file.export",
  delete: "file.event",
  mkdir: "file.event",
  rename: "file.event",
} as const;

function pathFields(act: FileAct, from: string, to: string | null): EventFields {
  switch (act) {
    case "import":
      return { "file.import.path": from };
    case "export":
      return { "file.export.path": from };
    case "delete":
      return { "file.delete.path": from };
    case "mkdir":
      return { "file.create.path": from };
    case "rename":
      // It goes from one place and comes to be at the other: a rule about either sees it.
      return { "file.delete.path": from, ...(to === null ? {} : { "file.create.path": to }) };
  }
}

/** The guest takes a relative path from the workspace. */
function inRoot(path: string): string {
  return posix.resolve("/workspace", path);
}
