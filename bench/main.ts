/** Prints the figures of docs/promises.md as a table and writes them as JSON. Nothing is asserted but correctness. */
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { cpus, loadavg, release, totalmem } from "node:os";
import { join, resolve } from "node:path";
import { ledgerFigures } from "./ledger-bench.ts";
import { ledgerClientFigures } from "./ledger-client-bench.ts";
import { mcpFigures } from "./mcp-bench.ts";
import { isShort } from "./measure.ts";
import { policyFigures } from "./policy-bench.ts";
import { type Figure, renderTable } from "./statistics.ts";
import { statusFigures } from "./status-bench.ts";
import { toolFigures } from "./tool-call-bench.ts";
import { railFigures } from "./tool-rail-bench.ts";
import { createFigures, cycleFigures, execFigures } from "./vm-bench.ts";

const root = resolve(import.meta.dirname, "..", "..");
const machine = {
  cpu: cpus()[0]?.model ?? "unknown",
  cores: cpus().length,
  memory_gib: Math.round(totalmem() / 1024 ** 3),
  kernel: release(),
  node: process.version,
  load_before: loadavg()[0],
  version: (JSON.parse(readFileSync(join(root, "package.json"), "utf8")) as { version: string }).version,
};

async function main(): Promise<void> {
  const areas: Readonly<Record<string, () => Promise<Figure[]>>> = {
    create: createFigures,
    exec: execFigures,
    cycles: cycleFigures,
    mcp: mcpFigures,
    policy: policyFigures,
    ledger: ledgerFigures,
    "ledger-client": ledgerClientFigures,
    status: statusFigures,
    tools: toolFigures,
    rail: railFigures,
  };
  // Words choose areas; without one all are measured.
  const asked = process.argv.slice(2);
  const figures: Figure[] = [];
  for (const [area, measure] of Object.entries(areas))
    if (asked.length === 0 || asked.includes(area)) figures.push(...(await measure()));
  console.log(
    `${machine.cores} × ${machine.cpu}, ${machine.memory_gib} GiB, Linux ${machine.kernel}, Node ${machine.node}, load ${machine.load_before?.toFixed(1)} → ${loadavg()[0]?.toFixed(1)}`,
  );
  console.log(renderTable(figures));
  // What a short run measures is no figure to keep.
  if (isShort) return;
  const report = { machine: { ...machine, load_after: loadavg()[0] }, figures };
  mkdirSync(join(root, "dist"), { recursive: true });
  writeFileSync(join(root, "dist", "bench.json"), `${JSON.stringify(report, null, 2)}\n`);
  console.log("written: dist/bench.json");
}

main().catch((cause: unknown) => {
  console.error(cause);
  process.exit(1);
});
