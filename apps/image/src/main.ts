import { realpathSync } from "node:fs";
import { resolve } from "node:path";
import { Failure, messageOf } from "@capsem/base";
import { buildAgentImage, buildImage, imagePowers, openImage, verifyImage } from "@capsem/vmm";
import { type Arguments, parseArguments, USAGE } from "./arguments.ts";
import { progressLine } from "./progress-line.ts";

/** Exit codes: 0 done, 1 failed, 2 wrong arguments, 130 interrupted. */
async function main(): Promise<number> {
  const stopper = new AbortController();
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.on(signal, () => stopper.abort());
  try {
    const programPath = realpathSync(process.argv[1] ?? "");
    await run(parseArguments(process.argv.slice(2), programPath), stopper.signal);
    return 0;
  } catch (error) {
    return report(error);
  }
}

async function run(args: Arguments, signal: AbortSignal): Promise<void> {
  if (args.kind === "help") {
    process.stdout.write(USAGE);
    return;
  }
  const cacheDir = resolve(args.cacheDir);
  if (args.kind === "verify") {
    await verifyImage(await openImage(cacheDir, args.digest), signal);
    return;
  }
  const powers = imagePowers();
  const line = progressLine(
    {
      columns: process.stderr.isTTY ? process.stderr.columns : undefined,
      write: (text) => process.stderr.write(text),
    },
    args.jsonProgress,
  );
  try {
    const { recipeDir, refresh } = args;
    const image = await buildImage(powers, { cacheDir, recipeDir, refresh, signal, onProgress: line.show });
    const files = args.agent === undefined ? undefined : { ...args.agent, recipeDir };
    const agent =
      files === undefined ? undefined : await buildAgentImage(powers, { cacheDir, files, signal });
    line.end();
    process.stdout.write(`${JSON.stringify({ image, ...(agent === undefined ? {} : { agent }) })}\n`);
  } finally {
    line.end();
  }
}

function report(error: unknown): number {
  if (!(error instanceof Failure)) {
    process.stderr.write(`image: ${error instanceof Error ? error.stack : messageOf(error)}\n`);
    return 1;
  }
  process.stderr.write(`image: ${error.message}\n`);
  if (error.kind === "usage") {
    process.stderr.write(USAGE);
    return 2;
  }
  if (error.kind === "cancelled") return 130;
  if (error.detail !== undefined)
    process.stderr.write(`${error.detail.trimEnd().split("\n").slice(-12).join("\n")}\n`);
  return 1;
}

// Everything is closed by then; an exit code that is set and not forced lets the output drain.
main().then((code) => {
  process.exitCode = code;
});
