import { Failure, messageOf, within } from "@capsem/base";
import { type CallParts, roomFor, timeLeftMs } from "../call/call-parts.ts";
import type { Answer } from "../call/caller.ts";
import { invalidParams, objectParam, textParam } from "../call/params.ts";
import { PlainCalls } from "../call/plain-call.ts";
import { blocked, notApproved } from "../call/refusal.ts";
import { ToolCalls } from "../call/tool-call.ts";
import type { ItemKind } from "../catalog/catalog.ts";
import type { Client, Origin } from "../conversation.ts";
import { requestDraft } from "../judge/events.ts";
import { type Asker, judge } from "../judge/judge.ts";
import { PROXY_LIMITS } from "../limits.ts";
import { ChangedRoots } from "./changed-roots.ts";
import { abilitiesOf, isLevel, levelOf, type Said } from "./client-state.ts";
import { clientNameOf, discoverResult, initializeResult } from "./hello.ts";
import { Listens } from "./listens.ts";
import { Lists } from "./lists.ts";
import type { OpenRequest } from "./open-request.ts";
import type { RailConversation } from "./rail-conversation.ts";
import { Subscriptions } from "./subscriptions.ts";
import { Targets } from "./targets.ts";

const DONE: Answer = { kind: "result", text: "{}" };

/** Who does what a request asks for. */
export class Dispatch {
  readonly tools: ToolCalls;
  readonly subscriptions: Subscriptions;
  readonly listens: Listens;
  readonly #parts: CallParts;
  readonly #plain: PlainCalls;
  readonly #lists: Lists;
  readonly #targets: Targets;
  readonly #begun: Promise<void>;
  #isReady = false;

  /** `begun` resolves when rules and servers have come. */
  constructor(parts: CallParts, begun: Promise<void>) {
    this.#parts = parts;
    this.#begun = begun;
    this.tools = new ToolCalls(parts);
    this.subscriptions = new Subscriptions(parts);
    this.#plain = new PlainCalls(parts);
    this.#lists = new Lists(parts);
    this.#targets = new Targets(parts);
    this.listens = new Listens({
      targets: this.#targets,
      plain: this.#plain,
      subscriptions: this.subscriptions,
    });
    void begun.then(() => {
      this.#isReady = true;
    });
  }

  get isReady(): boolean {
    return this.#isReady;
  }

  /** Throws Failure("not_ready") where the first rules do not come. */
  ready(): Promise<void> {
    const late = () =>
      new Failure("not_ready", "Cannot answer: the rules have not come yet", { retryable: true });
    return within(this.#begun, PROXY_LIMITS.rulesTimeoutMs, late);
  }

  nowMs(): number {
    return this.#parts.clock.monotonicMs();
  }

  /** For one client. */
  changedRoots(): ChangedRoots {
    return new ChangedRoots(this.#parts);
  }

  bug(where: string, thrown: unknown): void {
    const cause = thrown instanceof Error ? thrown.stack : messageOf(thrown);
    this.#parts.log("error", "a request failed for a bug", { where, cause });
  }

  askerOf(client: Client, said: Said, origin: Origin): Asker {
    return {
      transport: client.transport,
      processName: origin.processName,
      label: this.#parts.taints.of(client.taintKey),
      person: {
        trace_id: said.traceId,
        turn_id: null,
        requester: "guest",
        client: said.name,
        token_id: null,
      },
    };
  }

  async answer(conversation: RailConversation, request: OpenRequest): Promise<Answer> {
    const { params } = request;
    switch (request.method) {
      case "tools/call":
        return (await this.tools.call(request, params)).answer;
      case "tools/list":
        return this.#list(request, "tools");
      case "resources/list":
        return this.#list(request, "resources");
      case "resources/templates/list":
        return this.#list(request, "templates");
      case "prompts/list":
        return this.#list(request, "prompts");
      case "resources/read":
        return this.#plain.call(
          request,
          request.method,
          params,
          await this.#targets.resource(request, params),
        );
      case "prompts/get":
        return this.#plain.call(request, request.method, params, await this.#targets.prompt(request, params));
      case "completion/complete":
        return this.#plain.call(
          request,
          request.method,
          params,
          await this.#targets.completion(request, params),
        );
      case "resources/subscribe":
        return this.#subscribe(conversation, request);
      case "resources/unsubscribe":
        return this.#unsubscribe(conversation, request);
      case "subscriptions/listen":
        return this.listens.listen(request);
      case "initialize":
        return this.#initialize(conversation, request);
      case "server/discover":
        await this.#admit(request);
        return result(discoverResult(this.#parts.version));
      case "logging/setLevel":
        return this.#setLevel(conversation, request);
      case "ping":
        return DONE;
      default:
        throw new Failure("method_not_found", `Cannot do ${JSON.stringify(request.method)}: no such method`);
    }
  }

  async #list(request: OpenRequest, kind: ItemKind): Promise<Answer> {
    await roomFor("", request, this.#parts);
    return result(await this.#lists.list(request, kind, request.params));
  }

  async #initialize(conversation: RailConversation, request: OpenRequest): Promise<Answer> {
    const { params } = request;
    const { state } = conversation;
    state.name = clientNameOf(objectParam(params, "clientInfo"));
    state.abilities = abilitiesOf(objectParam(params, "capabilities"));
    await this.#admit(request, state.name);
    const asked = params.protocolVersion;
    return result(initializeResult(typeof asked === "string" ? asked : "", this.#parts.version).text);
  }

  /** A request that goes to no server. */
  async #admit(request: OpenRequest, client = request.asker.person.client): Promise<void> {
    const { vm, policy, recorder } = this.#parts;
    const { method, requestId } = request;
    const room = roomFor("", request, this.#parts);
    if (room !== undefined) await room;
    const { type, fields } = requestDraft(vm, request.asker, { method, id: requestId }, null);
    const who = recorder.who({ ...request.asker.person, client });
    const judgement = judge(policy.snapshot, type, who, fields);
    recorder.intent(judgement, 0, room !== undefined);
    const { decision } = judgement;
    const what = `do ${method}`;
    if (decision.action === "block") throw blocked(what, decision);
    if (decision.action === "allow") return;
    const end = await recorder.ask(judgement, what, timeLeftMs(request, this.#parts), request.signal);
    if (end.state !== "approved") throw notApproved(what, decision, end);
  }

  #setLevel({ state }: RailConversation, { params }: OpenRequest): Answer {
    const level = textParam(params, "level");
    if (!isLevel(level)) throw invalidParams('"level" is none');
    state.logLevel = levelOf(level);
    state.level = level;
    return DONE;
  }

  async #subscribe(conversation: RailConversation, request: OpenRequest): Promise<Answer> {
    const given = textParam(request.params, "uri");
    if (this.subscriptions.countOf(conversation) >= PROXY_LIMITS.subscriptionsOfClientMax) {
      throw new Failure(
        "busy",
        `Cannot subscribe: ${PROXY_LIMITS.subscriptionsOfClientMax} resources are watched`,
      );
    }
    const target = await this.#targets.resource(request, request.params);
    const { method, params } = request;
    const wish = {
      ...{ server: target.server.name, uri: target.key, asGiven: given },
      ...{ subscriber: conversation, caller: request },
    };
    return this.subscriptions.subscribe(wish, () => this.#plain.call(request, method, params, target));
  }

  /** Where others still wait for it, its server need not know. */
  async #unsubscribe(conversation: RailConversation, request: OpenRequest): Promise<Answer> {
    const target = await this.#targets.resource(request, request.params);
    const { server, key } = target;
    if (!this.subscriptions.remove(server.name, key, conversation)) return DONE;
    const { method, params } = request;
    return this.subscriptions.leave(server.name, key, () =>
      this.#plain.call(request, method, params, target),
    );
  }
}

function result(text: string): Answer {
  return { kind: "result", text };
}
