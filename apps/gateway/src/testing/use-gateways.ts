import { mkdirSync, mkdtempSync, readFileSync, realpathSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach } from "vitest";
import { type Gateway, startGateway } from "../gateway.ts";
import { logFolder, runFolder } from "../home-folders.ts";
import type { Powers } from "../powers.ts";
import { nodePowers } from "../powers-node.ts";
import { ensureToken, tokenPath } from "../token-file.ts";
import { startUpstream, type Upstream } from "./fake-upstream.ts";
import { type HttpClient, httpClient } from "./http-client.ts";

export interface GatewayRig {
  readonly home: string;
  readonly gateway: Gateway;
  readonly port: number;
  /** The file's content at this moment. */
  token(): string;
  /** Sends the token that was current when the rig started. */
  readonly client: HttpClient;
  readonly log: Record<string, unknown>[];
  /** The gateway's clock runs ahead by this much. */
  advance(ms: number): void;
}

export interface UpstreamRig extends GatewayRig {
  upstream: Upstream;
}

export interface GatewayRigOptions {
  readonly home?: string;
  readonly powers?: Partial<Powers>;
}

/** Gateways on real sockets that end with the test that started them. */
export function useGateways() {
  const closers: (() => Promise<void>)[] = [];
  afterEach(async () => {
    for (const close of closers.splice(0).reverse()) await close();
  });
  const start = async (options: GatewayRigOptions = {}): Promise<GatewayRig> => {
    const home = options.home ?? realpathSync(mkdtempSync(join(tmpdir(), "capsem-gateway-")));
    if (options.home === undefined) {
      closers.push(async () => rmSync(home, { recursive: true, force: true }));
    }
    for (const folder of [runFolder(home), logFolder(home)])
      mkdirSync(folder, { recursive: true, mode: 0o700 });
    ensureToken(runFolder(home));
    const log: Record<string, unknown>[] = [];
    const clock = { aheadMs: 0 };
    const powers: Powers = {
      ...nodePowers(home, 0),
      monotonicMs: () => performance.now() + clock.aheadMs,
      ...options.powers,
    };
    const gateway = await startGateway(powers, (level, message, fields = {}) => {
      log.push({ level, message, ...fields });
    });
    closers.push(() => gateway.close());
    const token = () => readFileSync(tokenPath(runFolder(home)), "utf8").trim();
    return {
      home,
      gateway,
      port: gateway.port,
      token,
      client: httpClient(gateway.port, token()),
      log,
      advance: (ms) => {
        clock.aheadMs += ms;
      },
    };
  };
  const startWithUpstream = async (options: GatewayRigOptions = {}): Promise<UpstreamRig> => {
    const rig = await start(options);
    const upstream = await startUpstream(join(runFolder(rig.home), "service.sock"));
    const whole = { ...rig, upstream };
    closers.push(() => whole.upstream.close());
    return whole;
  };
  return { start, startWithUpstream };
}
