import { randomBytes } from "node:crypto";
import { renameSync, rmSync, statSync } from "node:fs";
import { open } from "node:fs/promises";
import { dirname, join } from "node:path";
import { Failure } from "@capsem/base";
import type { LedgerExport } from "@capsem/sdk";
import type { Context } from "./context.ts";
import { counted as withProgress } from "./copy-to-vm.ts";
import { checkPlace } from "./local-path.ts";
import { counted, printableJson, renderBytes } from "./render.ts";

/** Its bytes as they are, so that others can verify them; on a terminal what would steer it is escaped. */
export async function exportTo(
  context: Context,
  ledger: LedgerExport,
  path: string | undefined,
): Promise<number> {
  const { output, powers } = context;
  if (path !== undefined && path !== "-") return await exportToFile(context, ledger, path);
  if (powers.stdout.isTerminal) {
    for await (const line of ledger) await output.print(`${printableJson(JSON.stringify(line))}\n`);
  } else for await (const part of ledger.bytes()) await output.print(part);
  return 0;
}

/** Readable by its user alone, and under its name only when it is whole. */
async function exportToFile(context: Context, ledger: LedgerExport, path: string): Promise<number> {
  const { output, json } = context;
  checkPlace(path);
  const found = statSync(path, { throwIfNoEntry: false });
  if (found !== undefined && !found.isFile())
    throw new Failure("file_failed", `Cannot export to ${JSON.stringify(path)}: it is there, and no file`);
  const temporary = join(dirname(path), `.capsem-${randomBytes(8).toString("hex")}`);
  const file = await open(temporary, "wx", 0o600);
  try {
    let [bytes, lines] = [0, 0];
    for await (const part of withProgress(context, ledger.bytes(), null)) {
      await file.writeFile(part);
      bytes += part.length;
      for (let at = part.indexOf(10); at >= 0; at = part.indexOf(10, at + 1)) lines += 1;
    }
    await file.sync();
    await file.close();
    renameSync(temporary, path);
    if (json) await output.json({ path, bytes, lines });
    else await output.line(`${path}: ${counted(lines, "line")}, ${renderBytes(bytes)}`);
    return 0;
  } catch (thrown) {
    await file.close();
    rmSync(temporary, { force: true });
    throw thrown;
  }
}
