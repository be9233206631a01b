import { mkdirSync, mkdtempSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import * as z from "zod";
import type { ClientHome } from "./clients.ts";
import type { Revision } from "./conformance-scenarios.ts";
import { runProgram } from "./program.ts";

const checks = z.array(
  z.looseObject({ id: z.string(), status: z.string(), errorMessage: z.string().optional() }),
);

/** One thing that the suite looked at, and what it says of it. */
export interface Check {
  readonly scenario: string;
  readonly id: string;
  readonly status: string;
  readonly said: string;
}

export interface SuiteRun {
  /** 0: nothing failed but what was expected to, and all of that did. */
  readonly code: number | null;
  readonly found: readonly Check[];
  readonly log: string;
}

/** The tasks extension is optional and nothing here declares it: its scenarios are not looked at. */
const EXTENSION = /^tasks-/;

/** Runs all that a revision requires of a server. `expected`: scenario and check of what fails. */
export async function runSuite(
  revision: Revision,
  url: string,
  home: ClientHome,
  expected: readonly (readonly [scenario: string, check: string, ...unknown[]])[],
): Promise<SuiteRun> {
  const folder = mkdtempSync(join(home.path, `suite-${revision}-`));
  const [out, list] = [join(folder, "out"), join(folder, "expected.yml")];
  mkdirSync(out);
  const names = expected.map(([scenario, check]) => `  - ${scenario}:${check}\n`);
  writeFileSync(list, names.length === 0 ? "server: []\n" : `server:\n${names.join("")}`);
  const words = ["server", "--url", url, "--requirements", revision, "--expected-failures", list, "-o", out];
  const { code, stdout, stderr } = await runProgram("conformance", words, home, { timeoutMs: 120_000 });
  const found = readdirSync(out).flatMap((each) => {
    const scenario = each.replace(/^server-/, "").replace(/-\d{4}-\d\d-\d\dT[\d-]+Z$/, "");
    return checks
      .parse(JSON.parse(readFileSync(join(out, each, "checks.json"), "utf8")))
      .map(({ id, status, errorMessage = "" }) => ({ scenario, id, status, said: errorMessage }));
  });
  return { code, found: found.filter(({ scenario }) => !EXTENSION.test(scenario)), log: stdout + stderr };
}

/** What did not pass, warnings included, as `scenario:check`. */
export function failuresOf({ found }: SuiteRun): readonly Check[] {
  return found.filter(({ status }) => status === "FAILURE" || status === "WARNING");
}

/** What passed, as `scenario:check`; one that is made more than once counts once. */
export function passesOf({ found }: SuiteRun): ReadonlySet<string> {
  const passed = found.filter(({ status }) => status === "SUCCESS");
  return new Set(passed.map(({ scenario, id }) => `${scenario}:${id}`));
}
