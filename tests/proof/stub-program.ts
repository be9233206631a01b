/**
 * `node stub-program.cjs FOLDER`: the stub model as a program, for where no test can run it: in a VM. FOLDER has
 * `plan.json`; it writes `url` there when it listens, and each turn as a line of `turns.jsonl`.
 */
import { appendFileSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import * as z from "zod";
import { startStubModel } from "./stub-model.ts";

const plan = z.object({ tool: z.string(), args: z.record(z.string(), z.unknown()) });

async function main(folder: string): Promise<void> {
  const { tool, args } = plan.parse(JSON.parse(readFileSync(join(folder, "plan.json"), "utf8")));
  const record = (turn: object) => appendFileSync(join(folder, "turns.jsonl"), `${JSON.stringify(turn)}\n`);
  const { url } = await startStubModel({ tool: new RegExp(tool), args }, record);
  writeFileSync(join(folder, "url.tmp"), url);
  renameSync(join(folder, "url.tmp"), join(folder, "url"));
}

main(process.argv[2] ?? ".").catch((cause: unknown) => {
  console.error(cause);
  process.exit(1);
});
