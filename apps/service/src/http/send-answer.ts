import type { ServerResponse } from "node:http";
import { apiFailure } from "@capsem/api";
import type { Answer } from "./handler.ts";

/** Sends an answer whole, at the client's pace. Rejects when the client goes away before its end. */
export async function sendAnswer(response: ServerResponse, answer: Answer<never>): Promise<void> {
  switch (answer.kind) {
    case "json":
      return sendJson(response, 200, answer.value);
    case "bytes":
      response.writeHead(200, { "content-type": "application/octet-stream", ...answer.headers });
      response.flushHeaders();
      await answer.pump((chunk) => write(response, chunk));
      return end(response);
    case "lines":
      response.writeHead(200, { "content-type": "application/x-ndjson" });
      await answer.pump((line) => write(response, `${JSON.stringify(line)}\n`));
      return end(response);
    case "socket":
      return;
  }
}

export function sendJson(response: ServerResponse, status: number, value: unknown): void {
  const body = JSON.stringify(value);
  response.writeHead(status, {
    "content-type": "application/json",
    "content-length": Buffer.byteLength(body),
  });
  response.end(body);
}

function write(response: ServerResponse, chunk: Uint8Array | string): Promise<void> {
  return new Promise((resolve, reject) => {
    if (response.destroyed) return reject(clientGone());
    if (response.write(chunk)) return resolve();
    const done = () => {
      response.off("drain", done);
      response.off("close", done);
      if (response.destroyed) reject(clientGone());
      else resolve();
    };
    response.on("drain", done);
    response.on("close", done);
  });
}

function end(response: ServerResponse): Promise<void> {
  return new Promise((resolve, reject) => {
    const closed = () => (response.writableFinished ? resolve() : reject(clientGone()));
    // Of one that is closed already, neither its end nor its closing is told any more.
    if (response.destroyed) return closed();
    response.once("close", closed);
    response.end(resolve);
  });
}

function clientGone() {
  return apiFailure("cancelled", "Cannot send the answer: the client is gone");
}
