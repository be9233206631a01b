import { createHash } from "node:crypto";
import { renderFault } from "../fault.ts";
import { type PolicyLayer, parseLayer } from "../layer.ts";
import type { RuleSource } from "../rule.ts";
import { compileSnapshot, type PolicySnapshot } from "../snapshot.ts";

/** The digest that the service uses: SHA-256. */
export function sha256(text: string): string {
  return createHash("sha256").update(text).digest("hex");
}

/** A layer that must be right; a test about wrong ones uses `parseLayer`. */
export function layerOf(source: RuleSource, text: string): PolicyLayer {
  const parsed = parseLayer(source, text);
  if (parsed.kind === "ok") return parsed.value;
  throw new Error(parsed.faults.map((fault) => renderFault(fault)).join("\n"));
}

export function snapshotOf(user: string, corp = ""): PolicySnapshot {
  return compileSnapshot({ user: layerOf("user", user), corp: layerOf("corp", corp) }, sha256);
}
