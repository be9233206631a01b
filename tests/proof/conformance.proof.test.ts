import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { gatewayCalls } from "../../apps/mcp/src/gateway-calls.ts";
import { every } from "../../apps/mcp/src/powers-node.ts";
import { createServer } from "../../apps/mcp/src/server.ts";
import { type Gateway, type Rig, startRig } from "../support/rig.ts";
import { type ClientHome, openClientHome } from "./clients.ts";
import { GENERIC, LEFT_OUT, REASONS, REVISIONS } from "./conformance-scenarios.ts";
import { type HttpFace, startHttpFace } from "./http-face.ts";
import { skipUnless } from "./skip.ts";
import { failuresOf, runSuite } from "./suite.ts";

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

  describe.each(REVISIONS)("at revision %s", (revision) => {
    test("finds no fault but where it needs its own fixture server", async () => {
      const run = await runSuite(revision, face.url, home, LEFT_OUT[revision]);
      const { found } = run;
      expect(run.code, run.log).toBe(0);
      const failures = failuresOf(run);
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
