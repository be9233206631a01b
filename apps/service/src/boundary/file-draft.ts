import { createHash } from "node:crypto";
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
  /** With all that is in it; of a folder that is made, with those above it. */
  readonly isTree?: boolean;
  readonly fields?: EventFields;
}

/** A file act as rules see it: by its path from the root, whichever way it was written. */
export function fileDraft(
  act: FileAct,
  { vm, path, toPath, isTree = false, fields }: FileAsked,
  more: Pick<ActDraft, "bound" | "onlyOnce" | "unseen"> = {},
): ActDraft {
  const from = inRoot(path);
  const to = toPath === undefined ? null : inRoot(toPath);
  const isFolder = isTree && (act === "import" || act === "export");
  return {
    type: TYPES[act],
    vm,
    fields: { ...actFields(act, from, to, isTree), ...fields },
    title: `${act}${isTree && act !== "mkdir" ? " the tree" : ""} ${from}${to === null ? "" : ` to ${to}`}`,
    row: {
      table: "fs_events",
      facts: { act, path: from, to_path: to, is_tree: isTree, bytes: null, sha256: null },
    },
    ...more,
    ...(isFolder ? { isTree: true, does: `${act} the folder` } : {}),
    // Whoever cannot go on in a VM must be able to get their files out of it.
    ...(act === "export" ? { needsNoRoom: true } : {}),
  };
}

interface ImportAsked extends Pick<FileAsked, "vm" | "path"> {
  readonly mode?: number | undefined;
  /** Where a window begins; absent of a whole file. */
  readonly offset?: number | undefined;
}

/**
 * A file that is written. Its first bytes are looked at where a rule in force reads them, and where a person is asked:
 * an approval is for these bytes.
 */
export async function importDraft(
  { mode, offset, ...asked }: ImportAsked,
  bytes: BodyBytes,
  snapshot: PolicySnapshot,
  signal: AbortSignal,
): Promise<ActDraft> {
  const isWhole = offset === undefined;
  const isContentRead = snapshot.reads("file.content") || snapshot.reads("file.import.content");
  const peek = () => bytes.peek(BOUNDARY_LIMITS.contentBytesMax, HTTP_LIMITS.fileBodyBytesMax, signal);
  const content = isContentRead && isWhole ? await peek() : null;
  const size = bytes.declaredBytes ?? (content !== null && isAll(content) ? content.length : null);
  if (size === null && isWhole && snapshot.reads("file.import.size")) {
    throw apiFailure(
      "invalid_input",
      "Cannot import the file: a rule reads its size, and the upload has no content-length",
    );
  }
  const fields: EventFields = {
    "file.import.is_whole": isWhole,
    ...(isWhole ? {} : { "file.import.offset": offset }),
    ...(size === null || !isWhole ? {} : { "file.import.size": size }),
    ...(content === null ? {} : { "file.import.content": content }),
  };
  return fileDraft(
    "import",
    { ...asked, fields },
    {
      bound: async () => ({ content: contentOf(await peek(), bytes), mode }),
      onlyOnce: ({ content }) =>
        (content as BoundContent).is_all
          ? null
          : "it is larger than 64 KiB, and what follows was not looked at",
      ...(isWhole ? {} : { unseen: ["file.import.content", "file.import.size"] }),
    },
  );
}

/** A tree that is unpacked. Its bytes come when the answer is there: an approval is for this call. */
export function treeImportDraft(asked: Pick<FileAsked, "vm" | "path">, bytes: BodyBytes): ActDraft {
  return fileDraft(
    "import",
    { ...asked, isTree: true, fields: { "file.import.is_whole": true } },
    {
      bound: () => ({ content: { bytes: bytes.declaredBytes } }),
      onlyOnce: () => "of a tree nothing is known but its path and size",
    },
  );
}

interface ExportAsked extends Pick<FileAsked, "vm" | "path"> {
  /** Where a window begins, and how long it is at most. */
  readonly offset: number;
  readonly length?: number | undefined;
}

/** What was read of a file before its export is judged. */
interface OpenedFile {
  readonly size: number;
  readonly content: Uint8Array;
}

/** A file that is read. `file` is there where a rule in force reads it. */
export function exportDraft({ offset, length, ...asked }: ExportAsked, file: OpenedFile | null): ActDraft {
  const reachesEnd = length === undefined || (file !== null && length >= file.size);
  const isWhole = offset === 0 && reachesEnd;
  const fields: EventFields = {
    "file.export.is_whole": isWhole,
    ...(isWhole ? {} : { "file.export.offset": offset }),
    ...(file === null ? {} : { "file.export.size": file.size }),
    ...(file === null || !isWhole ? {} : { "file.export.content": file.content }),
  };
  return fileDraft(
    "export",
    { ...asked, fields },
    {
      ...(length === undefined ? {} : { bound: () => ({ length }) }),
      ...(isWhole ? {} : { unseen: ["file.export.content"] }),
    },
  );
}

interface BoundContent {
  readonly bytes: number | null;
  /** Of the first 64 KiB and a byte, which are all of a shorter one. */
  readonly sha256: string;
  readonly is_all: boolean;
}

function contentOf(first: Uint8Array, { declaredBytes }: BodyBytes): BoundContent {
  const isWhole = isAll(first);
  const bytes = isWhole ? first.length : declaredBytes;
  return { bytes, sha256: createHash("sha256").update(first).digest("hex"), is_all: isWhole };
}

function isAll(first: Uint8Array): boolean {
  return first.length < BOUNDARY_LIMITS.contentBytesMax;
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

function actFields(act: FileAct, from: string, to: string | null, isTree: boolean): EventFields {
  switch (act) {
    case "import":
      return { "file.import.path": from, "file.import.is_tree": isTree };
    case "export":
      return { "file.export.path": from, "file.export.is_tree": isTree };
    case "delete":
      return { "file.delete.path": from, "file.delete.is_tree": isTree };
    case "mkdir":
      return { "file.create.path": from, "file.create.is_tree": isTree };
    case "rename":
      // It goes from one place and comes to be at the other: a rule about either sees it.
      return { "file.delete.path": from, ...(to === null ? {} : { "file.create.path": to }) };
  }
}

/** The guest takes a relative path from the workspace. */
function inRoot(path: string): string {
  return posix.resolve("/workspace", path);
}
