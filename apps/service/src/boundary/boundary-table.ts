import type { RouteName } from "@capsem/api";
import { newId } from "@capsem/base";
import { requesterText } from "../act.ts";
import type { RouteCall } from "../http/handler.ts";
import type { Powers } from "../powers.ts";
import type { Registry } from "../vm/registry.ts";
import { commandDraft } from "./command-draft.ts";
import { fileDraft, importDraft, treeImportDraft } from "./file-draft.ts";
import type { ActDraft, PolicySource, VmFacts } from "./parts.ts";
import { type LifecycleAction, lifecycleDraft, vmFactsOf } from "./vm-draft.ts";

export interface DraftParts {
  readonly registry: Pick<Registry, "get">;
  readonly powers: Pick<Powers, "random">;
  readonly policy: PolicySource;
}

/** Routes whose whole call is one act, drafted here from what was parsed. */
export type DraftedRoute =
  | "start"
  | "stop"
  | "restart"
  | "rename"
  | "persist"
  | "delete"
  | "exec"
  | "fileWrite"
  | "fileDelete"
  | "fileMkdir"
  | "fileRename"
  | "treeRead"
  | "treeWrite";

export type DraftOf<N extends RouteName> = (
  call: RouteCall<N>,
  parts: DraftParts,
) => ActDraft | Promise<ActDraft>;

/** Why nothing is judged. */
export interface NotJudged {
  readonly none: string;
}
const none = (reason: string): NotJudged => ({ none: reason });
const read = none("it only reads, and what it reads is the service's own");
/** Its handler passes the boundary itself: only it knows the acts, or there are several. */
const inside = "inside";

const WHOLE = { "file.export.is_whole": true } as const;

type BoundaryTable = {
  readonly [N in RouteName]: N extends DraftedRoute ? DraftOf<N> : typeof inside | NotJudged;
};

/** Every route and what is judged of it. A route without a row does not compile. */
export const BOUNDARY_TABLE: BoundaryTable = {
  status: read,
  health: read,
  stats: read,
  events: read,
  panics: read,
  triage: read,
  hostLogs: read,

  list: read,
  info: read,
  vmStatus: read,
  create: inside,
  run: inside,
  start: lifecycle("start"),
  stop: lifecycle("stop"),
  restart: lifecycle("restart"),
  rename: lifecycle("rename", ({ body }) => body.name),
  persist: lifecycle("persist", ({ body }) => body.name),
  delete: lifecycle("delete"),
  purge: inside,

  exec: ({ params, body }, parts) =>
    commandDraft(vmOf(parts, params.id), newId("job", parts.powers.random), "exec", body),
  stream: inside,
  jobs: read,
  jobOutput: none(
    "its job was judged, and so is its end: what is not judged yet, or withheld, is not given here either",
  ),
  jobSignal: none(
    "it can only end or disturb a job whose start was judged, and that job's row says by which signal it ended",
  ),
  logs: read,

  fileList: none("it shows names and sizes alone, and leaves the VM as it is"),
  fileStat: none("it shows names and sizes alone, and leaves the VM as it is"),
  fileRead: inside,
  fileWrite: ({ params, query, bytes, context }, parts) => {
    const asked = { ...query, vm: vmOf(parts, params.id) };
    return importDraft(asked, bytes, parts.policy.snapshot(), context.signal);
  },
  fileDelete: ({ params, query }, parts) => {
    const isTree = query.recursive ?? false;
    return fileDraft("delete", { vm: vmOf(parts, params.id), path: query.path, isTree });
  },
  fileMkdir: ({ params, body }, parts) =>
    fileDraft("mkdir", { vm: vmOf(parts, params.id), path: body.path, isTree: body.parents ?? false }),
  fileRename: ({ params, body }, parts) =>
    fileDraft("rename", { vm: vmOf(parts, params.id), path: body.path, toPath: body.to }),
  treeRead: ({ params, query }, parts) =>
    fileDraft("export", { vm: vmOf(parts, params.id), path: query.path, isTree: true, fields: WHOLE }),
  treeWrite: ({ params, query, bytes }, parts) =>
    treeImportDraft({ vm: vmOf(parts, params.id), path: query.path }, bytes),

  rules: read,
  rulePut: inside,
  ruleDelete: inside,
  ruleEvaluate: none("it says what would be decided, and does nothing"),
  ruleReplay: none("it says what would have been decided, and does nothing"),
  ruleLint: none("it looks at a text, and does nothing"),
  settings: read,
  settingEdit: inside,
  corp: read,
  corpValidate: none("it looks at a text, and does nothing"),
  corpReload: inside,

  asks: read,
  askResolve: none("it answers what the boundary asked, and asks record each answer themselves"),
  credentialInject: inside,
  credentials: read,
  credentialDelete: inside,

  mcpInfo: read,
  mcpServers: read,
  mcpServerPut: inside,
  mcpServerDelete: inside,
  mcpDefault: read,
  mcpDefaultSet: inside,
  mcpTools: read,
  mcpToolSet: inside,
  mcpRefresh: none(
    "it asks a declared server for its lists, and each connection to it is admitted and recorded",
  ),
  mcpPins: read,
  mcpPinsApprove: inside,
  mcpCall: none("its proxy judges the call, by the same rules, and its rows are made of what the proxy says"),

  timeline: read,
  history: read,
  vmStats: read,
  vmStatsDetail: read,
  securityEvents: read,
  ledgers: read,
  ledgerVerify: read,
  ledgerArchive: inside,
  ledgerExport: read,
};

type OfVm = "start" | "stop" | "restart" | "rename" | "persist" | "delete";

function lifecycle<N extends OfVm>(
  action: LifecycleAction & N,
  detailOf: (call: RouteCall<N>) => string | null = () => null,
): DraftOf<N> {
  return (call, parts) => {
    const { params, context } = call as RouteCall<OfVm>;
    return lifecycleDraft(vmOf(parts, params.id), action, requesterText(context.requester), detailOf(call));
  };
}

function vmOf({ registry }: DraftParts, id: string): VmFacts {
  return vmFactsOf(registry.get(id).record);
}
