import { existsSync } from "node:fs";
import { dirname } from "node:path";
import { Failure } from "@capsem/base";

/** The folder of a file that is to be made must be there. */
export function checkPlace(place: string): void {
  const missing = missingFolder(place);
  if (missing !== null)
    throw new Failure(
      "file_failed",
      `Cannot copy to ${JSON.stringify(place)}: folder ${JSON.stringify(missing)} does not exist`,
    );
}

export function sourceMissing(source: string): Failure {
  const missing = missingFolder(source);
  const what = missing === null ? "it" : `folder ${JSON.stringify(missing)}`;
  return new Failure("file_failed", `Cannot copy ${JSON.stringify(source)}: ${what} does not exist`);
}

/** The first folder on the way to a path that is not there. */
function missingFolder(path: string): string | null {
  const folder = dirname(path);
  if (existsSync(folder)) return null;
  return (dirname(folder) === folder ? null : missingFolder(folder)) ?? folder;
}
