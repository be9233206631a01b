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
  try {
    const text = readSmallFile(join(home, "settings.toml"), RECORD_BYTES_MAX);
    let table: readonly string[] = [];
    for (const { kind, path, start, end } of scanToml(text)) {
      if (kind === "header") table = path;
      else if ([...table, ...path].join(".") === key)
        return readTomlValue(text.slice(start, end), path.length) ?? undefined;
    }
    return undefined;
  } catch {
    return undefined;
  }
}
