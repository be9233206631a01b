import {
  chmodSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, expect, test } from "vitest";
import { startGateway } from "./gateway.ts";
import { runFolder } from "./home-folders.ts";
import { nodePowers } from "./powers-node.ts";
import { httpClient } from "./testing/http-client.ts";
import { useGateways } from "./testing/use-gateways.ts";
import { ensureToken, rotateToken, tokenPath } from "./token-file.ts";

const { startWithUpstream } = useGateways();
const folders: string[] = [];
afterEach(() => {
  for (const folder of folders.splice(0)) rmSync(folder, { recursive: true, force: true });
});

function newFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), "capsem-token-"));
  folders.push(folder);
  return folder;
}

test("a token is 64 letters and digits in a file of its owner alone, made once and kept", () => {
  const run = newFolder();
  expect(ensureToken(run)).toBe("created");
  const token = readFileSync(tokenPath(run), "utf8");
  expect(token).toMatch(/^[A-Za-z0-9]{64}\n$/);
  expect(statSync(tokenPath(run)).mode & 0o777).toBe(0o600);
  expect(ensureToken(run)).toBe("kept");
  expect(readFileSync(tokenPath(run), "utf8")).toBe(token);
  rotateToken(run);
  expect(readFileSync(tokenPath(run), "utf8")).not.toBe(token);
  expect(statSync(tokenPath(run)).mode & 0o777).toBe(0o600);
  expect(readdirSync(run)).toEqual(["gateway.token"]);
});

test("every character of the alphabet occurs, evenly enough", () => {
  const run = newFolder();
  const counts = new Map<string, number>();
  for (let round = 0; round < 300; round++) {
    rotateToken(run);
    for (const one of readFileSync(tokenPath(run), "utf8").trim())
      counts.set(one, (counts.get(one) ?? 0) + 1);
  }
  // 310 expected of each; five deviations are 88.
  expect(counts.size).toBe(62);
  for (const [one, count] of counts) expect(Math.abs(count - 310), one).toBeLessThan(120);
});

test("a link in the token's place is not followed when one is made", () => {
  const run = newFolder();
  const elsewhere = join(newFolder(), "victim");
  writeFileSync(elsewhere, "keep");
  symlinkSync(elsewhere, tokenPath(run));
  expect(ensureToken(run)).toBe("kept");
  rotateToken(run);
  expect(readFileSync(elsewhere, "utf8")).toBe("keep");
});

test("a rotated token is refused by the very next request, without a signal, and the new one passes", async () => {
  const rig = await startWithUpstream();
  const before = rig.token();
  const old = httpClient(rig.port, before);
  for (let round = 0; round < 10; round++) {
    expect((await httpClient(rig.port, rig.token()).get("/status")).status).toBe(200);
    rotateToken(runFolder(rig.home));
    expect((await old.get("/status")).status).toBe(401);
    expect((await httpClient(rig.port, rig.token()).get("/status")).status).toBe(200);
  }
  expect(rig.log.filter(({ message }) => message === "token replaced")).toHaveLength(10);
});

const SPOILED: readonly (readonly [string, (path: string) => void])[] = [
  ["is gone", (path) => rmSync(path)],
  ["holds something else", (path) => writeFileSync(path, "x".repeat(63))],
  ["holds more", (path) => writeFileSync(path, `${"x".repeat(64)}\nmore`)],
  ["is empty", (path) => writeFileSync(path, "")],
  ["is open to others", (path) => chmodSync(path, 0o644)],
  [
    "is a link",
    (path) => {
      renameSync(path, `${path}.real`);
      symlinkSync(`${path}.real`, path);
    },
  ],
];

test.each(SPOILED)(
  "a token file that %s means that no token is right, until it is right again",
  async (_name, spoil) => {
    const rig = await startWithUpstream();
    const path = tokenPath(runFolder(rig.home));
    const before = rig.token();
    expect((await rig.client.get("/status")).status).toBe(200);
    spoil(path);
    expect((await rig.client.get("/status")).status).toBe(401);
    for (const guess of ["", "x".repeat(63), "x".repeat(64), before]) {
      expect((await httpClient(rig.port, guess).get("/status")).status, guess).toBe(401);
    }
    expect(rig.log.map(({ message }) => message)).toContain("token unusable");
    await expect(startGateway(nodePowers(rig.home, 0), () => undefined)).rejects.toThrow();
    rotateToken(runFolder(rig.home));
    rig.advance(1_000);
    expect((await httpClient(rig.port, rig.token()).get("/status")).status).toBe(200);
  },
);

test("no answer, header or log line has the token", async () => {
  const rig = await startWithUpstream();
  const token = rig.token();
  const seen: string[] = [];
  for (const path of ["/status", "/gateway.token", "/run/gateway.token", "/token", "/nope?x=1"]) {
    for (const client of [rig.client, httpClient(rig.port, null), httpClient(rig.port, `${token}x`)]) {
      const reply = await client.get(path);
      seen.push(JSON.stringify(reply.headers), reply.bytes.toString());
    }
  }
  seen.push(JSON.stringify(rig.log));
  for (const text of seen) expect(text).not.toContain(token);
});
