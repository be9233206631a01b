import {
  chmodSync,
  chownSync,
  linkSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  realpathSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { startGateway } from "./gateway.ts";
import { logFolder, openHome, runFolder } from "./home-folders.ts";
import { nodePowers } from "./powers-node.ts";
import { ensureToken, rotateToken, tokenPath } from "./token-file.ts";

/** Only root can make what another user would. */
const isRoot = process.getuid?.() === 0;
const STRANGER = 4_242;
let home = "";
beforeEach(() => {
  home = realpathSync(mkdtempSync(join(tmpdir(), "capsem-gateway-")));
});
afterEach(() => rmSync(home, { recursive: true, force: true }));

test.runIf(isRoot)("a home that another user made, with a token of its own, is refused", () => {
  for (const folder of [runFolder(home), logFolder(home)]) {
    mkdirSync(folder);
    chownSync(folder, STRANGER, STRANGER);
    chmodSync(folder, 0o777);
  }
  expect(() => openHome(home)).toThrow(`it belongs to user ${STRANGER}, and we are user 0`);
});

test.runIf(isRoot)("another user's token is neither kept nor believed", async () => {
  const run = runFolder(openHome(home));
  writeFileSync(tokenPath(run), `${"a".repeat(64)}\n`, { mode: 0o600 });
  await expect(start()).resolves.toBeUndefined();
  chownSync(tokenPath(run), STRANGER, STRANGER);
  expect(() => ensureToken(run)).toThrow(`it belongs to user ${STRANGER}`);
  await expect(start()).rejects.toThrow(`it belongs to user ${STRANGER}`);
  rotateToken(run);
  expect(ensureToken(run)).toBe("kept");
  await expect(start()).resolves.toBeUndefined();
});

test("a home on a path through a link is opened at its real place, and closed to others", () => {
  chmodSync(home, 0o777);
  mkdirSync(runFolder(home));
  chmodSync(runFolder(home), 0o777);
  symlinkSync(home, `${home}-link`);
  expect(openHome(`${home}-link`)).toBe(home);
  rmSync(`${home}-link`);
  for (const folder of [home, runFolder(home), logFolder(home)])
    expect(statSync(folder).mode & 0o777).toBe(0o700);
});

test.each([
  ["a link", symlinkSync],
  ["a second name", linkSync],
] as const)("a log that is %s of another file writes nothing there", async (_what, place) => {
  openHome(home);
  const victim = join(home, "victim");
  writeFileSync(victim, "keep");
  place(victim, join(logFolder(home), "gateway.jsonl"));
  await expect(nodePowers(home, 0).openLog()).rejects.toThrow();
  expect(readFileSync(victim, "utf8")).toBe("keep");
});

test("a link at the temporary name of a pid file leads nowhere", async () => {
  openHome(home);
  const victim = join(home, "victim");
  writeFileSync(victim, "keep");
  for (const name of ["pid", "port"])
    symlinkSync(victim, join(runFolder(home), `gateway.${name}.${process.pid}.tmp`));
  ensureToken(runFolder(home));
  await start();
  expect(readFileSync(victim, "utf8")).toBe("keep");
});

async function start(): Promise<void> {
  const gateway = await startGateway(nodePowers(home, 0), () => undefined);
  await gateway.close();
}
