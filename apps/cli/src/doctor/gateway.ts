import { messageOf } from "@capsem/base";
import { findGateway, type GatewayState } from "../gateway-state.ts";
import type { Powers } from "../powers.ts";
import type { Finding } from "./findings.ts";

/** It is started when somebody wants it, so that its absence is no fault. */
export async function gateway(powers: Powers): Promise<Finding> {
  const name = "gateway";
  let found: GatewayState | null;
  try {
    found = await findGateway(powers);
  } catch (thrown) {
    return { name, state: "missing", detail: messageOf(thrown), remedy: "See home" };
  }
  if (found === null) {
    return { name, state: "good", detail: "not running; capsem gateway start starts it", remedy: "" };
  }
  if (!found.answers) {
    const detail = `pid ${found.pid} does not answer`;
    return { name, state: "missing", detail, remedy: "Run ./capsem gateway stop --force" };
  }
  const how = found.isConfined ? "confined" : "not confined";
  const detail = `answers at ${found.url}, pid ${found.pid}, ${how}`;
  const remedy = found.isConfined ? "" : "Start it without --allow-unconfined";
  return { name, state: found.isConfined ? "good" : "warning", detail, remedy };
}
