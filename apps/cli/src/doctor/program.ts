import { execFile } from "node:child_process";
import { accessSync, constants } from "node:fs";
import { join } from "node:path";
import { DOCTOR_COMMAND_MS } from "../limits.ts";
import type { Powers } from "../powers.ts";
import type { Finding } from "./findings.ts";

export interface Need {
  readonly name: string;
  readonly file: string;
  /** Makes it say its version and end. */
  readonly flag: string;
  readonly debian: string;
  readonly lack: string;
}

/** Found, and able to run: a file that crashes at once is as good as none. */
export async function program(need: Need, powers: Powers): Promise<Finding> {
  const { name, file, flag, debian, lack } = need;
  const install = `apt-get install ${debian}`;
  const path = findProgram(file, powers.env.PATH ?? "");
  if (path === null)
    return { name, state: "missing", detail: `${file} is not there, so ${lack}`, remedy: install };
  const said = await firstLine(path, flag);
  if (said === null)
    return {
      name,
      state: "missing",
      detail: `${path} does not run, so ${lack}`,
      remedy: `apt-get install --reinstall ${debian}`,
    };
  return { name, state: "good", detail: `${said} (${path})`, remedy: "" };
}

/** Folders of the administrator are often not in a user's PATH, and are searched after it. */
export function findProgram(file: string, path: string): string | null {
  for (const folder of [...path.split(":"), "/usr/local/sbin", "/usr/sbin", "/sbin"]) {
    if (folder === "") continue;
    const candidate = join(folder, file);
    try {
      accessSync(candidate, constants.X_OK);
      return candidate;
    } catch {
      // Not in this folder: the next one is asked.
    }
  }
  return null;
}

function firstLine(path: string, flag: string): Promise<string | null> {
  return new Promise((resolve) => {
    execFile(path, [flag], { timeout: DOCTOR_COMMAND_MS }, (error, stdout, stderr) => {
      const text = `${stdout}\n${stderr}`.split("\n").find((line) => line.trim() !== "");
      resolve(error !== null && typeof error.code !== "number" ? null : (text?.trim() ?? null));
    });
  });
}
