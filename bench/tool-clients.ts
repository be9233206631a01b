// Clients without an SDK: what they add to a figure is next to nothing, and the same for each contender.
import type { ChildProcess } from "node:child_process";
import { Agent, request as ask, type IncomingMessage } from "node:http";
import type { Readable, Writable } from "node:stream";
import { type Link, resultOf } from "./tool-contender.ts";

const CALL_TIMEOUT_MS = 60_000;

/** Who waits for an answer, by the id of its request. */
class Waiting {
  readonly #open = new Map<number, { take: (answer: unknown) => void; fail: (cause: Error) => void }>();
  #next = 0;

  add(send: (id: number) => void): Promise<unknown> {
    this.#next += 1;
    const id = this.#next;
    return new Promise((resolve, reject) => {
      const timer = setTimeout(
        () => this.#settle(id, () => reject(new Error("no answer in time"))),
        CALL_TIMEOUT_MS,
      );
      const over = (done: () => void) => {
        clearTimeout(timer);
        done();
      };
      this.#open.set(id, {
        take: (answer) =>
          over(() => {
            try {
              resolve(resultOf(answer));
            } catch (thrown) {
              reject(thrown);
            }
          }),
        fail: (cause) => over(() => reject(cause)),
      });
      send(id);
    });
  }

  take(message: { id?: unknown }): void {
    const { id } = message;
    if (typeof id === "number") this.#settle(id, (waiting) => waiting.take(message));
  }

  fail(cause: Error): void {
    for (const id of [...this.#open.keys()]) this.#settle(id, (waiting) => waiting.fail(cause));
  }

  #settle(
    id: number,
    how: (waiting: { take: (answer: unknown) => void; fail: (cause: Error) => void }) => void,
  ): void {
    const waiting = this.#open.get(id);
    this.#open.delete(id);
    if (waiting !== undefined) how(waiting);
  }
}

const text = (message: object) => JSON.stringify({ jsonrpc: "2.0", ...message });

/** Cuts bytes at line feeds; a line of megabytes is joined once. */
export function onLines(input: Readable, take: (line: string) => void): void {
  let parts: Buffer[] = [];
  input.on("data", (chunk: Buffer) => {
    let rest = chunk;
    for (let at = rest.indexOf(10); at >= 0; at = rest.indexOf(10)) {
      parts.push(rest.subarray(0, at));
      take(Buffer.concat(parts).toString("utf8"));
      parts = [];
      rest = rest.subarray(at + 1);
    }
    if (rest.length > 0) parts.push(rest);
  });
}

/** MCP by lines of a child's. */
export function lineLink(child: ChildProcess): Link {
  const { stdin, stdout } = child as ChildProcess & { stdin: Writable; stdout: Readable };
  const waiting = new Waiting();
  stdin.on("error", () => undefined);
  child.once("exit", (code) => waiting.fail(new Error(`the program ended with ${code}`)));
  onLines(stdout, (line) => waiting.take(JSON.parse(line)));
  return {
    request: (method, params) => waiting.add((id) => stdin.write(`${text({ id, method, params })}\n`)),
    async notify(method) {
      stdin.write(`${text({ method })}\n`);
    },
  };
}

/** Streamable HTTP, with answers as JSON or as the one event of a stream. */
export function httpLink(url: string): Link & { close(): void } {
  const agent = new Agent({ keepAlive: true, maxSockets: 256 });
  let session: string | undefined;
  let next = 0;
  const post = async (message: object): Promise<string> => {
    const body = text(message);
    const answer = await new Promise<IncomingMessage>((resolve, reject) => {
      const outgoing = ask(url, {
        method: "POST",
        agent,
        timeout: CALL_TIMEOUT_MS,
        headers: headersOf(body, session),
      });
      outgoing.on("response", resolve).on("error", reject);
      outgoing.on("timeout", () => outgoing.destroy(new Error("no answer in time")));
      outgoing.end(body);
    });
    const chunks: Buffer[] = [];
    for await (const chunk of answer) chunks.push(chunk as Buffer);
    const said = Buffer.concat(chunks).toString("utf8");
    if ((answer.statusCode ?? 500) >= 300)
      throw new Error(`HTTP ${answer.statusCode}: ${said.slice(0, 120)}`);
    session ??= answer.headers["mcp-session-id"] as string | undefined;
    return answer.headers["content-type"]?.startsWith("text/event-stream") === true ? lastEvent(said) : said;
  };
  return {
    async request(method, params) {
      next += 1;
      const answer = JSON.parse(await post({ id: next, method, params })) as { id: number };
      if (answer.id !== next && answer.id === undefined) throw new Error("an answer without an id");
      return resultOf(answer);
    },
    async notify(method) {
      await post({ method });
    },
    close: () => agent.destroy(),
  };
}

function headersOf(body: string, session: string | undefined) {
  return {
    ...{ "content-type": "application/json", accept: "application/json, text/event-stream" },
    ...{ "content-length": Buffer.byteLength(body), "mcp-protocol-version": "2025-11-25" },
    ...(session === undefined ? {} : { "mcp-session-id": session }),
  };
}

/** The data of the event that answers: the last of those that have any. */
function lastEvent(stream: string): string {
  const events = stream.split(/\r?\n\r?\n/).filter((event) => /^data:/m.test(event));
  const lines = (events.at(-1) ?? "").split(/\r?\n/).filter((line) => line.startsWith("data:"));
  return lines.map((line) => line.slice(line.startsWith("data: ") ? 6 : 5)).join("\n");
}

/** The older form: one stream down, posts up. */
export async function eventLink(url: string): Promise<Link & { close(): void }> {
  const agent = new Agent({ keepAlive: true, maxSockets: 256 });
  const waiting = new Waiting();
  const down = await new Promise<IncomingMessage>((resolve, reject) => {
    const outgoing = ask(url, { headers: { accept: "text/event-stream" } });
    outgoing.on("response", resolve).on("error", reject).end();
  });
  if (down.statusCode !== 200) {
    down.destroy();
    throw new Error(`HTTP ${down.statusCode}`);
  }
  const endpoint = await new Promise<string>((resolve) => {
    let event = "";
    onLines(down, (raw) => {
      const line = raw.trimEnd();
      if (line.startsWith("event:")) event = line.slice(6).trim();
      if (!line.startsWith("data:")) return;
      const data = line.slice(5).trim();
      if (event === "endpoint") resolve(new URL(data, url).href);
      else waiting.take(JSON.parse(data));
    });
  });
  const post = (message: object) => {
    const body = text(message);
    const headers = { "content-type": "application/json", "content-length": Buffer.byteLength(body) };
    return new Promise<void>((resolve, reject) => {
      const outgoing = ask(endpoint, { method: "POST", agent, headers });
      outgoing.on("error", reject);
      outgoing.on("response", (answer) => {
        answer.resume();
        const isTaken = (answer.statusCode ?? 500) < 300;
        answer.on("end", () => (isTaken ? resolve() : reject(new Error(`HTTP ${answer.statusCode}`))));
      });
      outgoing.end(body);
    });
  };
  return {
    request: (method, params) =>
      waiting.add((id) => {
        post({ id, method, params }).catch((cause: Error) =>
          waiting.take({ id, error: { code: 0, message: cause.message } } as never),
        );
      }),
    notify: (method) => post({ method }),
    close: () => {
      agent.destroy();
      down.destroy();
    },
  };
}
