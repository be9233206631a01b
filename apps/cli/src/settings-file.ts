import { join } from "node:path";
import { scanToml } from "./command/mcp-toml-statements.ts";
import { RECORD_BYTES_MAX } from "./limits.ts";
import { readSmallFile } from "./own-home.ts";
import { readTomlValue } from "./toml-value.ts";

/**
 * One value of the user's `settings.toml`, for who looks at this machine without a service; undefined where it is not
 * said, or in a file that the service itself refuses. What holds is the service's to say: the corporation may have it.
 */
export function settingOfFile(home: string, key: string): string | number | boolean | undefined {
  const found = pairsOf(home).find((pair) => pair.path.join(".") === key);
  return found === undefined ? undefined : (readTomlValue(found.statement, found.names) ?? undefined);
}

interface Pair {
  /** From the root of the file. */
  readonly path: readonly string[];
  /** `key = value`, and how many names its key has. */
  readonly statement: string;
  readonly names: number;
}

/** None of a file that cannot be read. */
function pairsOf(home: string): Pair[] {
  try {
    const text = readSmallFile(join(home, "settings.toml"), RECORD_BYTES_MAX);
    let table: readonly string[] = [];
    return scanToml(text).flatMap(({ kind, path, start, end }) => {
      if (kind === "header") table = path;
      if (kind === "header") return [];
      return [{ path: [...table, ...path], statement: text.slice(start, end), names: path.length }];
    });
  } catch {
    return [];
  }
}
