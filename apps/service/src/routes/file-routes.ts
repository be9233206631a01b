import type { ActContext } from "../act.ts";
import { exportDraft, isExportRead } from "../boundary/file-draft.ts";
import { BOUNDARY_LIMITS } from "../boundary/limits.ts";
import type { Permit } from "../boundary/parts.ts";
import type { JudgedHandlers } from "../boundary/through-boundary.ts";
import { vmFactsOf } from "../boundary/vm-draft.ts";
import { type Answer, type BodyBytes, json } from "../http/handler.ts";
import { ByteMeter } from "../job/byte-meter.ts";
import { peekDown, pipeUp } from "../job/byte-pipes.ts";
import { FILE_LIMITS, HTTP_LIMITS } from "../limits.ts";
import type { CallLimits, OwnerRun } from "../owner/owner-run.ts";
import { useVm } from "../vm/use-vm.ts";
import { downAnswer, openDown } from "./download.ts";
import type { RouteParts } from "./parts.ts";

const OK = { ok: true } as const;

/** Files of a VM: bytes pass through, looked at only where a rule reads them, and paths are the guest's to judge. */
export function fileRoutes(parts: RouteParts) {
  const { registry, powers } = parts;
  const inVm = <T>(
    id: string,
    context: ActContext,
    work: (run: OwnerRun, limits: CallLimits) => Promise<T>,
  ) => useVm(registry.get(id), powers.monotonicMs, context.signal, (run) => work(run, limitsOf(context)));
  return {
    fileList: async ({ params, query, context }) => {
      const { path = ".", depth = 1, offset = 0, limit = FILE_LIMITS.listEntriesDefault } = query;
      return json(
        await inVm(params.id, context, (run, limits) =>
          run.call("file.list", { path, depth, offset, limit }, limits),
        ),
      );
    },
    fileStat: async ({ params, query, context }) =>
      json(await inVm(params.id, context, (run, limits) => run.call("file.stat", query, limits))),
    fileRead: ({ params, query, context }) => readFile(parts, params.id, query, context),
    fileWrite: async ({ params, query, bytes, context, permit }) => {
      const { path, mode, offset } = query;
      const request = {
        path,
        ...(mode === undefined ? {} : { mode }),
        ...(offset === undefined ? {} : { offset }),
      };
      const chunks = bytes.chunks(HTTP_LIMITS.fileBodyBytesMax);
      const meter = new ByteMeter(offset === undefined);
      return json(
        await inVm(params.id, context, (run, limits) =>
          upload(run, "file.write", request, { chunks, meter, permit }, limits),
        ),
      );
    },
    fileDelete: async ({ params, query, context }) => {
      const request = { path: query.path, recursive: query.recursive ?? false };
      await inVm(params.id, context, (run, limits) => run.call("file.remove", request, limits));
      return json(OK);
    },
    fileMkdir: async ({ params, body, context }) => {
      const request = { path: body.path, parents: body.parents ?? false };
      await inVm(params.id, context, (run, limits) => run.call("file.mkdir", request, limits));
      return json(OK);
    },
    fileRename: async ({ params, body, context }) => {
      await inVm(params.id, context, (run, limits) => run.call("file.rename", body, limits));
      return json(OK);
    },
    treeRead: async ({ params, query, context, permit }): Promise<Answer<"treeRead">> => {
      const vm = registry.get(params.id);
      const opened = await openDown(parts, vm, context, async (run) => {
        const { stream } = await run.open("tree.read", query, limitsOf(context));
        return { stream, headers: { "content-type": "application/x-tar" } };
      });
      return downAnswer(parts, vm, context, opened, { act: permit.keep() });
    },
    treeWrite: async ({ params, query, bytes, context, permit }) => {
      const chunks = bytes.chunks(HTTP_LIMITS.treeBodyBytesMax);
      const meter = new ByteMeter(false);
      return json(
        await inVm(params.id, context, (run, limits) =>
          upload(run, "tree.write", query, { chunks, meter, permit }, limits),
        ),
      );
    },
  } satisfies Partial<JudgedHandlers>;
}

interface ReadQuery {
  readonly path: string;
  readonly offset?: number | undefined;
  readonly length?: number | undefined;
}

/** Judged before the guest is asked for anything, or, where a rule reads the file, before its first byte leaves. */
async function readFile(
  parts: RouteParts,
  id: string,
  { path, offset = 0, length }: ReadQuery,
  context: ActContext,
): Promise<Answer<"fileRead">> {
  const { boundary, policy, registry } = parts;
  const vm = registry.get(id);
  const asked = { vm: vmFactsOf(vm.record), path, offset, length };
  const isWhole = offset === 0 && length === undefined;
  const open = async (run: OwnerRun) => {
    const request = { path, offset, ...(length === undefined ? {} : { length }) };
    const { result, stream } = await run.open("file.read", request, limitsOf(context));
    return { stream, size: result.size, headers: { "x-capsem-size": String(result.size) } };
  };
  if (!isExportRead(policy.snapshot())) {
    return boundary.pass(context, exportDraft(asked, null), async (permit) => {
      const opened = await openDown(parts, vm, context, open);
      return downAnswer(parts, vm, context, opened, { act: permit.keep(), isWhole });
    });
  }
  let size = 0;
  const opened = await openDown(parts, vm, context, async (run) => {
    const file = await open(run);
    size = file.size;
    return { ...file, peeked: await peekDown(run, file.stream, BOUNDARY_LIMITS.contentBytesMax) };
  });
  try {
    const content = Buffer.concat(opened.peeked ?? []).subarray(0, BOUNDARY_LIMITS.contentBytesMax);
    return await boundary.pass(context, exportDraft(asked, { size, content }), async (permit) =>
      downAnswer(parts, vm, context, opened, { act: permit.keep(), isWhole }),
    );
  } catch (thrown) {
    opened.stream.reset("cancelled");
    throw thrown;
  }
}

/** A large directory or a slow disk takes its time inside the guest; the owner bounds the silence. */
function limitsOf(context: ActContext): CallLimits {
  return { signal: context.signal, trace: context.trace, timeoutMs: FILE_LIMITS.answerTimeoutMs };
}

interface Upload {
  readonly chunks: ReturnType<BodyBytes["chunks"]>;
  readonly meter: ByteMeter;
  readonly permit: Permit;
}

async function upload<M extends "file.write" | "tree.write">(
  run: OwnerRun,
  method: M,
  request: Parameters<typeof run.open<M>>[1],
  { chunks, meter, permit }: Upload,
  limits: CallLimits,
): Promise<{ bytes: number }> {
  const { stream } = await run.open(method, request, limits);
  try {
    const bytes = await pipeUp(run, stream, meter.through(chunks));
    permit.add({ bytes, sha256: meter.sha256() });
    return { bytes };
  } catch (thrown) {
    permit.add({ bytes: meter.bytes });
    throw thrown;
  }
}
