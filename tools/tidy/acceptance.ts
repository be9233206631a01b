import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { Source } from "./sources.ts";

/**
 * docs/acceptance/*.md: each behaviour is a line "- text", and under it "  - test: title" lines or one
 * "  - later: with what". A title must be the name of a test that exists.
 */
export function checkAcceptance(root: string, sources: readonly Source[]): string[] {
  const folder = join(root, "docs", "acceptance");
  if (!existsSync(folder)) return ["docs/acceptance: missing"];
  const tests = sources.filter(({ test }) => test).map(({ text }) => text);
  const faults: string[] = [];
  for (const name of readdirSync(folder)) {
    let open: string | null = null;
    for (const line of `${readFileSync(join(folder, name), "utf8")}\n- end`.split("\n")) {
      if (line.startsWith("- ")) {
        if (open !== null)
          faults.push(`docs/acceptance/${name}: no test and no "later" for: ${open.slice(0, 80)}`);
        open = line === "- end" ? null : line.slice(2);
      } else if (line.startsWith("  - later: ")) open = null;
      else if (line.startsWith("  - test: ")) {
        open = null;
        const title = line.slice("  - test: ".length).trim();
        if (!tests.some((text) => text.includes(title)))
          faults.push(`docs/acceptance/${name}: no test is named: ${title}`);
      }
    }
  }
  return faults;
}
