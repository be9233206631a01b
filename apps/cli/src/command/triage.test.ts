import type { Finding } from "@capsem/api";
import { expect, test } from "vitest";
import { renderFindings } from "./triage.ts";

const finding = (vm_id: string | null, title: string): Finding => ({
  ...{ kind: "server_error", time: "2025-01-02T03:04:05.000Z", vm_id, title },
  ...{ detail: "nobody listens there", count: 2 },
});

test("a finding says of which VM it is, and what happened", () => {
  const id = "vm_abcdefghij234567";
  const findings = [finding(id, "exec failed"), finding(null, "list failed")];
  const lines = renderFindings(findings, 200).trimEnd().split("\n");
  expect(lines.slice(1).map((line) => line.split(/ {2,}/).slice(3))).toEqual([
    [id, "exec failed: nobody listens there"],
    ["-", "list failed: nobody listens there"],
  ]);
});
