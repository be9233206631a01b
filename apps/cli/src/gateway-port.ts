import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { GATEWAY_PORT } from "./limits.ts";
import type { Powers } from "./powers.ts";

type Home = Pick<Powers, "home">;

/** Where the running gateway listens; its file goes with it. */
export function runningPort({ home }: Home): number | null {
  return portIn(join(home, "run", "gateway.port"));
}

/** The one that was chosen last and worked, else the usual one: clients were told of it. */
export function chosenPort({ home }: Home): number {
  return portIn(fileOf(home)) ?? GATEWAY_PORT;
}

export function rememberPort({ home }: Home, port: number): void {
  mkdirSync(home, { recursive: true, mode: 0o700 });
  writeFileSync(fileOf(home), `${port}\n`, { mode: 0o600 });
}

/** Where a client finds the gateway, or will find it. */
export function knownPort(powers: Home): number {
  return runningPort(powers) ?? chosenPort(powers);
}

function fileOf(home: string): string {
  return join(home, "gateway-port");
}

/** Null: no file, or none of ours. */
function portIn(path: string): number | null {
  try {
    const port = Number(readFileSync(path, "utf8").trim());
    return Number.isInteger(port) && port > 0 && port <= 65_535 ? port : null;
  } catch {
    return null;
  }
}
