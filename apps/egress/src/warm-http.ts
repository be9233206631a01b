import { Socket } from "node:net";
import { within } from "@capsem/base";
import type { Native } from "@capsem/native";
import { HttpPool } from "./http-pool.ts";
import { EGRESS_LIMITS } from "./limits.ts";

const ANSWER = "HTTP/1.1 200 OK\r\ncontent-length: 4\r\nconnection: close\r\n\r\nwarm";

/**
 * One request over a pair of sockets of our own, before the seal: the parser's code is compiled, and whatever the library
 * would load at its first use is there.
 */
export async function warmHttp(native: Pick<Native, "socketPair">): Promise<void> {
  const [near, far] = native
    .socketPair("stream")
    .map((fd) => new Socket({ fd, readable: true, writable: true }));
  if (near === undefined || far === undefined) return;
  far.once("data", () => far.end(ANSWER));
  far.on("error", () => far.destroy());
  const pool = HttpPool.over(near);
  const exchange = pool.request({
    path: "/",
    method: "GET",
    headers: [],
    body: null,
    isLast: true,
    onEnd: () => undefined,
  });
  try {
    await within(exchange.head, EGRESS_LIMITS.warmTimeoutMs);
    while ((await exchange.read()) !== null);
  } finally {
    await pool.close();
    near.destroy();
    far.destroy();
  }
}
