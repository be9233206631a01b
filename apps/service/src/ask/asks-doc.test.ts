import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { CREDENTIAL_LIMITS } from "../credential/limits.ts";
import { ASK_LIMITS } from "./limits.ts";

const page = (name: string) => readFileSync(join(import.meta.dirname, "../../../../docs", name), "utf8");

test("the pages of asks and credentials say the limits that hold", () => {
  const { waitingMax, waitingOfVmMax, callsMax, keptMax, reserveMs, retryMs, keptMs } = ASK_LIMITS;
  expect(page("asks.md")).toContain(
    `${waitingMax} asks wait at most, ${waitingOfVmMax} of one VM, ${callsMax} calls for one ask`,
  );
  const { waitingOfNoVmMax, waitingOfRequesterMax, waitingLaterMax } = ASK_LIMITS;
  expect(page("asks.md")).toContain(`${waitingOfNoVmMax} may be about no VM`);
  expect(page("asks.md")).toContain(`${waitingOfRequesterMax} of one client with one token`);
  expect(page("asks.md")).toContain(`${waitingLaterMax} may hold no call`);
  expect(page("asks.md")).toContain(`${keptMax.toLocaleString("en")} are listed for a day`);
  expect(page("asks.md")).toContain(`less ${reserveMs / 1000} seconds`);
  expect([retryMs, keptMs]).toEqual([10 * 60_000, 24 * 3600_000]);
  const { countMax, secretCharactersTotalMax, pieceCharactersMax, formCharactersMin } = CREDENTIAL_LIMITS;
  expect(page("credentials.md")).toContain(
    `At most ${countMax} credentials, ${secretCharactersTotalMax.toLocaleString("en")} characters together`,
  );
  expect(page("credentials.md")).toContain(`longer than ${pieceCharactersMax} characters`);
  expect(page("credentials.md")).toContain(`each line of ${formCharactersMin} characters or more`);
});
