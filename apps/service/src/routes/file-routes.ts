import type { ActContext } from "../act.ts";
import { type Answer, type BodyBytes, type Handlers, json } from "../http/handler.ts";
import { pipeUp } from "../job/byte-pipes.ts";
import { FILE_LIMITS, HTTP_LIMITS } from "../limits.ts";
import type { CallLimits, OwnerRun } from "../owner/owner-run.ts";
import { useVm } from "../vm/use-vm.ts";
import { openDown } from "./job-routes.ts";
import type { RouteParts } from "./parts.ts";

const OK = { ok: true } as const;

/** Files of a VM: the service passes bytes through and never looks at them, and paths are the guest's to judge. */
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
    fileRead: async ({ params, query, context }): Promise<Answer<"fileRead">> => {
      const { path, offset = 0, length } = query;
      return openDown(parts, registry.get(params.id), context, async (run) => {
        const request = { path, offset, ...(length === undefined ? {} : { length }) };
        const { result, stream } = await run.open("file.read", request, limitsOf(context));
        return { stream, headers: { "x-capsem-size": String(result.size) } };
      });
    },
    fileWrite: async ({ params, query, bytes, context }) => {
      const { path, mode, offset } = query;
      const request = {
        path,
        ...(mode === undefined ? {} : { mode }),
        ...(offset === undefined ? {} : { offset }),
      };
      const chunks = bytes.chunks(HTTP_LIMITS.fileBodyBytesMax);
      return json(
        await inVm(params.id, context, (run, limits) => upload(run, "file.write", request, chunks, limits)),
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
    treeRead: async ({ params, query, context }): Promise<Answer<"treeRead">> =>
      openDown(parts, registry.get(params.id), context, async (run) => {
        const { stream } = await run.open("tree.read", query, limitsOf(context));
        return { stream, headers: { "content-type": "application/x-tar" } };
      }),
    treeWrite: async ({ params, query, bytes, context }) => {
      const chunks = bytes.chunks(HTTP_LIMITS.treeBodyBytesMax);
      return json(
        await inVm(params.id, context, (run, limits) => upload(run, "tree.write", query, chunks, limits)),
      );
    },
  } satisfies Partial<Handlers>;
}

/** A large directory or a slow disk takes its time inside the guest; the owner bounds the silence. */
function limitsOf(context: ActContext): CallLimits {
  return { signal: context.signal, trace: context.trace, timeoutMs: FILE_LIMITS.answerTimeoutMs };
}

async function upload<M extends "file.write" | "tree.write">(
  run: OwnerRun,
  method: M,
  request: Parameters<typeof run.open<M>>[1],
  chunks: ReturnType<BodyBytes["chunks"]>,
  limits: CallLimits,
): Promise<{ bytes: number }> {
  const { stream } = await run.open(method, request, limits);
  return { bytes: await pipeUp(run, stream, chunks) };
}
