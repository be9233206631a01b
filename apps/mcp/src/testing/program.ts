import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const root = join(dirname(fileURLToPath(import.meta.url)), "../../../..");

/** The npm package as it is published, in a folder of its own. */
export interface Program {
  readonly folder: string;
  readonly path: string;
  close(): void;
}

export function packProgram(): Program {
  const folder = mkdtempSync(join(tmpdir(), "capsem-mcp-"));
  execFileSync(process.execPath, [join(root, "tools/pack-mcp.mjs"), join(folder, "package")], {
    stdio: "pipe",
  });
  return {
    folder,
    path: join(folder, "package", "mcp.cjs"),
    close: () => rmSync(folder, { recursive: true, force: true }),
  };
}

export interface Ended {
  readonly code: number | null;
  readonly signal: string | null;
  readonly stdout: string;
  readonly stderr: string;
}

type Message = Record<string, unknown>;

/** A server under test, spoken to in raw lines. */
export class Session {
  readonly child: ChildProcess;
  readonly ended: Promise<Ended>;
  #stdout = Buffer.alloc(0);
  #stderr = "";
  #waiting: { test: (message: Message) => boolean; done: (message: Message) => void }[] = [];
  readonly messages: Message[] = [];

  constructor(path: string, args: readonly string[], env: Record<string, string> = {}) {
    this.child = spawn(process.execPath, [path, ...args], {
      env: { PATH: process.env.PATH ?? "", ...env },
      stdio: ["pipe", "pipe", "pipe"],
    });
    this.child.stdin?.on("error", () => undefined);
    this.child.stdout?.on("data", (data: Buffer) => this.#take(data));
    this.child.stderr?.on("data", (data: Buffer) => {
      this.#stderr += data.toString();
    });
    this.ended = new Promise((done) => {
      this.child.once("close", (code, signal) =>
        done({ code, signal, stdout: this.#stdout.toString("utf8"), stderr: this.#stderr }),
      );
    });
  }

  write(data: string | Uint8Array): void {
    this.child.stdin?.write(data);
  }

  send(message: Message): void {
    this.write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`);
  }

  end(): Promise<Ended> {
    this.child.stdin?.end();
    return this.ended;
  }

  next(test: (message: Message) => boolean): Promise<Message> {
    const found = this.messages.find(test);
    if (found !== undefined) return Promise.resolve(found);
    return new Promise((done) => this.#waiting.push({ test, done }));
  }

  async request(id: unknown, method: string, params: Message = {}): Promise<Message> {
    this.send({ id, method, params });
    return this.next((message) => message.id === id && !("method" in message));
  }

  async initialize(protocolVersion = "2025-11-25"): Promise<Message> {
    const clientInfo = { name: "test", version: "1" };
    const answer = await this.request("init", "initialize", {
      protocolVersion,
      capabilities: {},
      clientInfo,
    });
    this.send({ method: "notifications/initialized" });
    return answer;
  }

  /** Each line of stdout must be a message: a test fails here at the first byte that is not. */
  #take(data: Buffer): void {
    this.#stdout = Buffer.concat([this.#stdout, data]);
    const lines = this.#stdout.toString("utf8").split("\n");
    for (const line of lines.slice(this.messages.length, -1)) {
      const message = JSON.parse(line) as Message;
      this.messages.push(message);
      for (const waiting of this.#waiting.filter(({ test }) => test(message))) waiting.done(message);
    }
  }
}
