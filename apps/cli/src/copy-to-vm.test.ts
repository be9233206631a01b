import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { CapsemError, type Vm } from "@capsem/sdk";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { Context } from "./context.ts";
import { copyToVm } from "./copy-to-vm.ts";
import { fakePowers } from "./testing/fake-powers.ts";

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "copy-to-vm-"));
  writeFileSync(join(folder, "a"), "x");
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

test("a place that cannot be looked at is written to all the same, and that says why it fails", async () => {
  const refuses = (verb: string) => async (_: string, body?: AsyncIterable<Uint8Array>) => {
    for await (const _part of body ?? []);
    throw new CapsemError("file_not_permitted", `Cannot ${verb} "/etc/x": Permission denied`, {
      status: 403,
    });
  };
  const vm = { files: { stat: refuses("read"), write: refuses("write") } } as unknown as Vm;
  const context = { powers: fakePowers().powers, output: {}, json: false, tried: { event: null } };
  await expect(copyToVm(context as unknown as Context, vm, join(folder, "a"), "/etc/x")).rejects.toThrow(
    'Cannot write "/etc/x": Permission denied',
  );
});
