import type { Handler } from "../context.ts";
import { type Finding, findings } from "../doctor/findings.ts";

const MARKS = { good: "ok  ", warning: "warn", missing: "MISS", skipped: "-   " } as const;

/** Exit code 1 when something that is needed is missing. */
export const doctor: Handler = async ({ powers, output, json }) => {
  const found: Finding[] = [];
  for (const check of findings(powers)) {
    const finding = await check();
    found.push(finding);
    if (json) continue;
    await output.line(`${MARKS[finding.state]}  ${finding.name}: ${finding.detail}`);
    if (finding.remedy !== "") await output.line(`      ${finding.remedy}`);
  }
  const good = found.every((finding) => finding.state !== "missing");
  if (json) await output.json({ ok: good, checks: found });
  return good ? 0 : 1;
};
