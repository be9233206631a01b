import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import type { AskInfo } from "@capsem/api";

type Body = Readonly<Record<string, unknown>>;

export interface Request {
  readonly path: string;
  readonly client: string;
  /** Whether it said that it asks its user by itself. */
  readonly asksLater: boolean;
  readonly body: Body;
}

const RULE = "profiles.rules.deploy";
const REASON = "deployments need a person";
const STREAM = { encoding: "utf8", data: "", truncated: false };
const RESULT = {
  exit_code: 0,
  ...{ job_id: "job_aaaaaaaaaaaaaaaa", signal: null, stdout: STREAM, stderr: STREAM },
  ...{ timed_out: false, out_of_memory: null, duration_ms: 1, agent_ms: 1 },
};

/** A gateway before a service with one rule: commands that have the word "deploy" are asked about. */
export class AskingGateway {
  url = "";
  readonly seen: Request[] = [];
  /** The newest last. */
  readonly asks: AskInfo[] = [];
  /** Commands that were carried out. */
  readonly done: string[] = [];
  /** What the next asks have that is not usual. */
  next: Partial<AskInfo> = {};
  /** May answer a request by itself, or break its connection. True: it did. */
  intercept: ((path: string, response: ServerResponse) => boolean) | null = null;
  readonly #held = new Map<string, () => void>();

  /** As a person elsewhere would, or time. */
  settle(state: "approved" | "denied" | "expired"): void {
    const scope = state === "approved" ? "once" : null;
    for (const ask of this.asks) if (ask.state === "pending") this.#change(ask, { state, scope });
  }

  async answer(request: Request, response: ServerResponse): Promise<void> {
    const { path } = request;
    this.seen.push(request);
    if (this.intercept?.(path, response) === true) return;
    if (path.startsWith("/asks/list")) {
      const state = new URL(path, "http://x").searchParams.get("state");
      send(response, 200, { asks: this.asks.filter((ask) => ask.state === state) });
    } else if (path.endsWith("/resolve")) this.#resolve(request, response);
    else await this.#exec(request, response);
  }

  async #exec(request: Request, response: ServerResponse): Promise<void> {
    const [, , vm = ""] = request.path.split("/");
    const command = String(request.body.command);
    if (command.includes("deploy")) {
      const own = this.asks.filter(({ digest }) => digest === `${vm} ${command}`);
      const approval = own.find((ask) => ask.state === "approved" && !ask.is_used);
      const pending = own.find(({ state }) => state === "pending");
      const ask = approval ?? pending ?? this.#make(vm, command, request.client);
      if (ask.state === "pending" && !request.asksLater)
        await new Promise<void>((resolve) => this.#held.set(ask.id, resolve));
      if (ask.state !== "approved") return refuse(response, ask);
      if (ask.scope === "once") this.#change(ask, { is_used: true });
    }
    this.done.push(command);
    send(response, 200, RESULT);
  }

  #make(vm_id: string, command: string, client: string): AskInfo {
    const nowMs = Date.now();
    const ask: AskInfo = {
      id: `ask_abcdefghij23456${"abcdefghijklmnop".charAt(this.asks.length)}`,
      state: "pending",
      ...{ vm_id, vm_name: "dev", type: "process.exec", title: `bash -c ${JSON.stringify(command)}` },
      ...{ rule_id: RULE, reason: REASON, requester: "gateway", client, trace_id: null },
      digest: `${vm_id} ${command}`,
      created_at: new Date(nowMs).toISOString(),
      expires_at: new Date(nowMs + 300_000).toISOString(),
      ...{ is_held: false, is_used: false, scope: null, resolver: null, note: null, resolved_at: null },
      event_id: "abcdefabcdef",
      scopes: ["once", "vm", "always"],
      ...this.next,
    };
    this.asks.push(ask);
    return ask;
  }

  #resolve({ path, body }: Request, response: ServerResponse): void {
    const ask = this.asks.find(({ id }) => id === path.split("/")[2]);
    if (ask?.state !== "pending") {
      fail(response, 409, "wrong_state", over(ask));
      return;
    }
    const { note } = body as { note: string };
    const scope = body.approve === true ? ((body.scope as AskInfo["scope"]) ?? "once") : null;
    this.#change(ask, { state: scope === null ? "denied" : "approved", scope, note });
    send(response, 200, ask);
  }

  #change(ask: AskInfo, change: Partial<AskInfo>): void {
    Object.assign(ask, change);
    this.#held.get(ask.id)?.();
  }
}

export async function startAskingGateway(): Promise<AskingGateway & { close(): Promise<void> }> {
  const gateway = new AskingGateway();
  const server = createServer(async (incoming, response) => {
    const body = await bodyOf(incoming);
    await gateway.answer({ path: incoming.url ?? "", body, ...headersOf(incoming) }, response);
  });
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  gateway.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const close = () =>
    new Promise<void>((done) => {
      server.close(() => done());
      server.closeAllConnections();
    });
  return Object.assign(gateway, { close });
}

function headersOf({ headers }: IncomingMessage): Pick<Request, "client" | "asksLater"> {
  return {
    client: String(headers["x-capsem-client"]),
    asksLater: headers["x-capsem-asks"] === "later",
  };
}

async function bodyOf(incoming: IncomingMessage): Promise<Body> {
  let text = "";
  for await (const part of incoming) text += String(part);
  return text === "" ? {} : (JSON.parse(text) as Body);
}

function send(response: ServerResponse, status: number, value: unknown): void {
  response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(value));
}

function fail(
  response: ServerResponse,
  status: number,
  kind: string,
  reason: string,
  facts: Body = {},
): void {
  send(response, status, { error: { retryable: false, ...facts, kind, reason, status } });
}

function over(ask: AskInfo | undefined): string {
  return `Cannot resolve ask "${ask?.id}": it ${ask?.state === "expired" ? "expired" : `was ${ask?.state}`}`;
}

function refuse(response: ServerResponse, { id, state, rule_id }: AskInfo): void {
  const how = { pending: "it waits for a person", denied: "a person denied it" }[String(state)];
  const reason = `Cannot run the command: ${how ?? "nobody answered in time"}; asked by ${RULE}: ${REASON} (${id})`;
  fail(response, 403, "policy", reason, { rule_id, ask_id: id, retryable: state === "pending" });
}
