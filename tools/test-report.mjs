// What the reports of vitest say of a stage, and how it is told at the end, where a cut log still has it.

const FAILURES_SHOWN_MAX = 100;
const LINE_CHARS_MAX = 400;
const COLOURS = new RegExp(`${String.fromCharCode(27)}\\[[0-9;]*m`, "g");

const firstLine = (text) =>
  (text ?? "")
    .replace(COLOURS, "")
    .split("\n")
    .map((line) => line.trim())
    .find((line) => line !== "") ?? "no message";

/**
 * Counts one stage: `report` is vitest's own, or null where it wrote none, and `code` how it ended. What was not
 * counted, or failed beside its tests, is a failure too.
 */
export function countStage({ name, report, code, root }) {
  const stage = { passed: 0, failures: [], skips: [] };
  const files = report?.testResults ?? [];
  for (const file of files) {
    const path = file.name.startsWith(`${root}/`) ? file.name.slice(root.length + 1) : file.name;
    for (const { status, fullName, failureMessages = [], meta } of file.assertionResults) {
      if (status === "passed") stage.passed += 1;
      else if (status === "failed")
        stage.failures.push(`${path}: ${fullName}: ${firstLine(failureMessages[0])}`);
      else stage.skips.push(`${fullName}: ${meta?.skipReason ?? "see the test's output"}`);
    }
    const isTold = file.assertionResults.some(({ status }) => status === "failed");
    if (file.status === "failed" && !isTold) stage.failures.push(`${path}: ${firstLine(file.message)}`);
  }
  if (report === null) stage.failures.push(`${name}: no report`);
  else if (stage.passed + stage.failures.length + stage.skips.length === 0)
    stage.failures.push(`${name}: no tests`);
  if (code !== 0 && stage.failures.length === 0)
    stage.failures.push(`${name}: it ended with ${code}, though no test failed`);
  return stage;
}

/** The last lines of a run. */
export function closingLines({ passed, failures, skips, times }) {
  const shown = failures.slice(0, FAILURES_SHOWN_MAX);
  const more = failures.length - shown.length;
  return [
    ...skips.map((skip) => `skipped  ${skip}`),
    `times    ${times.map(({ name, ms }) => `${name} ${(ms / 1000).toFixed(1)} s`).join(", ")}`,
    ...shown.map((failure) => `failed   ${failure}`.slice(0, LINE_CHARS_MAX)),
    ...(more > 0 ? [`failed   and ${more} more`] : []),
    `${passed} passed, ${failures.length} failed, ${skips.length} skipped`,
  ];
}
