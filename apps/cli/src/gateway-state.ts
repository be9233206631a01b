import { readFileSync } from "node:fs";
import { request } from "node:http";
import { join } from "node:path";
import { runningPort } from "./gateway-port.ts";
import { GATEWAY_PROBE_MS } from "./limits.ts";
import type { Powers } from "./powers.ts";
import { findRun } from "./run-pid.ts";

/** The gateway as its run files and its port tell of it. */
export interface GatewayState {
  readonly pid: number;
  /** Null: it has not said yet where it listens. */
  readonly port: number | null;
  readonly url: string | null;
  readonly answers: boolean;
  /** The service behind it answers too. */
  readonly hasService: boolean;
  /** Its process is the gatekeeper, behind which the gateway is confined. */
  readonly isConfined: boolean;
}

export function tokenFileOf(home: string): string {
  return join(home, "run", "gateway.token");
}

/** Null: none runs. */
export async function findGateway(powers: Pick<Powers, "home" | "now">): Promise<GatewayState | null> {
  const found = findRun(powers, "gateway");
  if (found === null) return null;
  const port = runningPort(powers);
  const answer = port === null ? null : await healthOf(port);
  const isConfined = readText(`/proc/${found.pid}/comm`).startsWith("capsem-gatekee");
  const hasService = answer !== null && answer < 500;
  return { pid: found.pid, port, url: urlOf(port), answers: answer !== null, hasService, isConfined };
}

export function urlOf(port: number | null): string | null {
  return port === null ? null : `http://127.0.0.1:${port}`;
}

/** Empty when it is not there: not written yet, or removed as it ended. */
function readText(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return "";
  }
}

/** The status of its open route, which it asks of the service; null when it does not answer itself. */
function healthOf(port: number): Promise<number | null> {
  return new Promise((resolve) => {
    const asking = request(
      { host: "127.0.0.1", port, path: "/health", agent: false, timeout: GATEWAY_PROBE_MS },
      (response) => {
        response.resume();
        resolve(response.statusCode ?? 0);
      },
    );
    asking.on("timeout", () => asking.destroy(new Error("late")));
    asking.on("error", () => resolve(null));
    asking.end();
  });
}
