import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { linuxProcesses } from "../powers-node.ts";
import { ProcessRecord } from "./process-record.ts";

test("once a record is settled its folder can go, and nothing comes back", async () => {
  const folder = mkdtempSync(join(tmpdir(), "capsem-record-"));
  const path = join(folder, "processes.json");
  const record = new ProcessRecord(path, linuxProcesses());
  record.note("owner", process.pid);
  record.note("hypervisor", process.pid);
  expect(existsSync(path)).toBe(false);
  await record.settled();
  expect(Object.keys(JSON.parse(readFileSync(path, "utf8")))).toEqual(["owner", "hypervisor"]);
  rmSync(folder, { recursive: true });
  await record.settled();
  expect(existsSync(folder)).toBe(false);
});
