import { connect } from "node:net";

export interface RawReply {
  readonly status: number;
  readonly kind: string | undefined;
  readonly text: string;
}

/** Sends bytes as they are and reads to the end of the connection; the answers in it, one after the other. */
export function sendRaw(port: number, bytes: string | Buffer): Promise<RawReply[]> {
  return new Promise((resolve, reject) => {
    const socket = connect({ host: "127.0.0.1", port });
    const chunks: Buffer[] = [];
    socket.on("data", (chunk) => chunks.push(chunk));
    // Bytes that nobody read any more reset the connection; what was answered before counts.
    socket.on("error", (error: NodeJS.ErrnoException) => {
      if (error.code !== "ECONNRESET" && error.code !== "EPIPE") reject(error);
    });
    socket.on("close", () => resolve(parseReplies(Buffer.concat(chunks).toString("latin1"))));
    socket.write(typeof bytes === "string" ? Buffer.from(bytes, "latin1") : bytes);
  });
}

function parseReplies(text: string): RawReply[] {
  const replies: RawReply[] = [];
  for (const part of text.split(/(?=HTTP\/1\.1 \d{3} )/)) {
    const status = /^HTTP\/1\.1 (\d{3}) /.exec(part)?.[1];
    if (status === undefined) continue;
    replies.push({ status: Number(status), kind: /"kind":"([a-z_]+)"/.exec(part)?.[1], text: part });
  }
  return replies;
}

/** A request as text. A header given as an array is sent several times. */
export function requestText(
  line: string,
  headers: Readonly<Record<string, string | readonly string[]>>,
  body = "",
): string {
  const lines = Object.entries(headers).flatMap(([name, value]) => {
    return (typeof value === "string" ? [value] : value).map((one) => `${name}: ${one}\r\n`);
  });
  return `${line}\r\n${lines.join("")}\r\n${body}`;
}
