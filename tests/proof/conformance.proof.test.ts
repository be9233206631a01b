import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import * as z from "zod";
import { gatewayCalls } from "../../apps/mcp/src/gateway-calls.ts";
import { every } from "../../apps/mcp/src/powers-node.ts";
import { createServer } from "../../apps/mcp/src/server.ts";
import { type Gateway, type Rig, startRig } from "../support/rig.ts";
import { type ClientHome, openClientHome } from "./clients.ts";
import { EXTENSION, GENERIC, LEFT_OUT, REASONS, REVISIONS, type Revision } from "./conformance-scenarios.ts";
import { type HttpFace, startHttpFace } from "./http-face.ts";
import { runProgram } from "./program.ts";
import { skipUnless } from "./skip.ts";

const checks = z.array(
  z.looseObject({ id: z.string(), status: z.string(), errorMessage: z.string().optional() }),
);

interface Check {
  readonly scenario: string;
  readonly id: string;
  readonly status: string;
  readonly said: string;
}

describe("the official conformance suite", skipUnless("conformance"), () => {
  let rig: Rig;
  let gateway: Gateway;
  let home: ClientHome;
  let face: HttpFace;
  beforeAll(async () => {
    rig = await startRig();
    gateway = await rig.startGateway();
    home = openClientHome();
    const calls = gatewayCalls(gateway.url, { tokenFile: gateway.tokenFile });
    const options = { version: "0.0.0", timeoutMs: 30_000, every, stateKey: () => new Uint8Array(32) };
    face = await startHttpFace(() => createServer(calls, options));
  });
  afterAll(async () => {
    await face?.stop();
    await home?.remove();
    await rig?.stop();
  });

  /** Runs all that the revision requires. What is left out goes to the suite as its own list of expected failures. */
  async function runSuite(revision: Revision): Promise<{ code: number | null; found: Check[]; log: string }> {
    const out = join(home.path, revision);
    mkdirSync(out);
    const expected = join(home.path, `${revision}.yml`);
    const names = LEFT_OUT[revision].map(([scenario, check]) => `  - ${scenario}:${check}\n`);
    writeFileSync(expected, `server:\n${names.join("")}`);
    const { code, stdout, stderr } = await runProgram(
      "conformance",
      ["server", "--url", face.url, "--requirements", revision, "--expected-failures", expected, "-o", out],
      home,
    );
    const found = readdirSync(out).flatMap((folder) => {
      const scenario = folder.replace(/^server-/, "").replace(/-\d{4}-\d\d-\d\dT[\d-]+Z$/, "");
      return checks
        .parse(JSON.parse(readFileSync(join(out, folder, "checks.json"), "utf8")))
        .map(({ id, status, errorMessage = "" }) => ({ scenario, id, status, said: errorMessage }));
    });
    return { code, found: found.filter(({ scenario }) => !EXTENSION.test(scenario)), log: stdout + stderr };
  }

  describe.each(REVISIONS)("at revision %s", (revision) => {
    test("finds no fault but where it needs its own fixture server", async () => {
      const { code, found, log } = await runSuite(revision);
      expect(code, log).toBe(0);
      const failures = found.filter(({ status }) => status === "FAILURE" || status === "WARNING");
      expect(failures.map(({ scenario, id }) => `${scenario}:${id}`).sort()).toEqual(
        LEFT_OUT[revision].map(([scenario, id]) => `${scenario}:${id}`).sort(),
      );
      for (const [scenario, id, reason] of LEFT_OUT[revision]) {
        const said = failures.find((one) => one.scenario === scenario && one.id === id)?.said;
        expect(said, `${scenario}:${id}`).toMatch(REASONS[reason].says);
      }
      for (const [scenario, least] of Object.entries(GENERIC[revision])) {
        const passed = found.filter((one) => one.scenario === scenario && one.status === "SUCCESS");
        expect(passed.length, scenario).toBeGreaterThanOrEqual(least);
      }
      const valid = found.filter(({ id }) => id === "wire-schema-valid");
      expect(valid.length).toBeGreaterThan(25);
      expect(valid.every(({ status }) => status === "SUCCESS")).toBe(true);
    });
  });
});
