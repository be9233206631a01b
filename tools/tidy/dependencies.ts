import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

/** What a process bundles, by package: pinned in apps/NAME/deps.txt. A red pin is a question, not an error to wave through. */
export function checkDependencies(root: string, update: boolean): string[] {
  const faults: string[] = [];
  for (const app of readdirSync(join(root, "apps"))) {
    const metafile = join(root, "dist", `${app}.meta.json`);
    if (!existsSync(metafile)) {
      faults.push(`apps/${app}: no bundle, run npm run build`);
      continue;
    }
    const found = `${packagesOf(JSON.parse(readFileSync(metafile, "utf8"))).join("\n")}\n`;
    const pin = join(root, "apps", app, "deps.txt");
    if (update) writeFileSync(pin, found);
    else if (!existsSync(pin) || readFileSync(pin, "utf8") !== found) {
      faults.push(`apps/${app}/deps.txt differs from the bundle; see why, then run npm run tidy -- --update`);
    }
  }
  return faults;
}

interface Metafile {
  readonly inputs: Readonly<
    Record<string, { readonly imports: readonly { readonly path: string; readonly external?: boolean }[] }>
  >;
}

function packagesOf(metafile: Metafile): string[] {
  const names = new Set<string>();
  for (const [path, input] of Object.entries(metafile.inputs)) {
    const parts = path.split("/");
    const at = parts.lastIndexOf("node_modules");
    if (at >= 0) {
      const first = parts[at + 1] ?? "";
      names.add(first.startsWith("@") ? `${first}/${parts[at + 2]}` : first);
    } else if (parts[0] === "packages") names.add(`@capsem/${parts[1]}`);
    for (const { path: target, external } of input.imports) {
      // A relative one is another bundle of the same program.
      if (external === true && !target.startsWith("."))
        names.add(target.startsWith("node:") ? target : `node:${target}`);
    }
  }
  return [...names].sort();
}
