import { execFileSync } from "node:child_process";
import {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  statSync,
  symlinkSync,
  unlinkSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { expect, test } from "vitest";
import type { Baseline } from "./baseline.ts";
import { comeHome, type HomeReport } from "./come-home.ts";
import { packTree } from "./pack.ts";
import { readTar } from "./tar-reader.ts";
import { gather, inFolder, once } from "./tree-testing.ts";

interface Trip {
  readonly home: string;
  readonly guest: string;
  readonly baseline: Baseline;
  back(deletes?: boolean): Promise<HomeReport>;
}

/** Copies a folder in; the guest's side is a folder that GNU tar packs and unpacks, as the guest agent does. */
function onTrip(fill: (home: string) => void, work: (trip: Trip) => Promise<void>): Promise<void> {
  return inFolder(async (outer) => {
    const home = `${outer}/home`;
    const guest = `${outer}/guest`;
    mkdirSync(home);
    mkdirSync(guest);
    fill(home);
    const warnings: string[] = [];
    const { tar, baseline } = packTree(home, { warn: (text) => warnings.push(text) });
    execFileSync("tar", ["-C", guest, "-xpf", "-"], { input: await gather(tar) });
    expect(warnings).toEqual([]);
    const back = (deletes = false) =>
      comeHome(readTar(once(packGuest(guest))), home, baseline, {
        deletes,
      });
    await work({ home, guest, baseline, back });
  });
}

function packGuest(folder: string): Buffer {
  return execFileSync("tar", ["-C", folder, "--sort=name", "-cf", "-", "."], {
    maxBuffer: 256 * 1024 * 1024,
  });
}

function fill(home: string): void {
  writeFileSync(`${home}/a`, "one");
  writeFileSync(`${home}/run.sh`, "#!/bin/sh\n", { mode: 0o755 });
  mkdirSync(`${home}/d/e`, { recursive: true });
  writeFileSync(`${home}/d/e/ü`, "deep");
  symlinkSync("../a", `${home}/d/l`);
}

const quiet = { changed: [], conflicts: [], refused: [], deleted: [], kept: [] };

test("a tree that nobody touched comes home without a change", () =>
  onTrip(fill, async ({ home, back }) => {
    const before = statSync(`${home}/a`);
    expect(await back()).toMatchObject(quiet);
    expect(statSync(`${home}/a`).ino).toBe(before.ino);
  }));

test("changed, new and re-moded files, folders and links come home", () =>
  onTrip(fill, async ({ home, guest, back }) => {
    writeFileSync(`${guest}/a`, "two");
    chmodSync(`${guest}/run.sh`, 0o700);
    mkdirSync(`${guest}/n`);
    writeFileSync(`${guest}/n/x`, "new");
    unlinkSync(`${guest}/d/l`);
    symlinkSync("e", `${guest}/d/l`);
    const report = await back();
    expect([...report.changed].sort()).toEqual(["a", "d/l", "n", "n/x", "run.sh"]);
    expect(readFileSync(`${home}/a`, "utf8")).toBe("two");
    expect(statSync(`${home}/run.sh`).mode & 0o777).toBe(0o700);
    expect(readlinkSync(`${home}/d/l`)).toBe("e");
  }));

test("a change that keeps size and time is still seen", () =>
  onTrip(fill, async ({ home, guest, back }) => {
    const { atime, mtime } = statSync(`${guest}/a`);
    writeFileSync(`${guest}/a`, "two");
    utimesSync(`${guest}/a`, atime, mtime);
    await back();
    expect(readFileSync(`${home}/a`, "utf8")).toBe("two");
  }));

test("a file changed on both sides is kept, with the guest's beside it", () =>
  onTrip(fill, async ({ home, guest, back }) => {
    writeFileSync(`${guest}/a`, "guest");
    writeFileSync(`${home}/a`, "mine");
    writeFileSync(`${home}/a.capsem-guest`, "older");
    const report = await back();
    expect(report.conflicts).toEqual([{ path: "a", beside: "a.capsem-guest-2" }]);
    expect(readFileSync(`${home}/a`, "utf8")).toBe("mine");
    expect(readFileSync(`${home}/a.capsem-guest-2`, "utf8")).toBe("guest");
  }));

test("the same change on both sides, and a mere touch at home, are no conflict", () =>
  onTrip(fill, async ({ home, guest, back }) => {
    writeFileSync(`${guest}/a`, "both");
    writeFileSync(`${home}/a`, "both");
    writeFileSync(`${guest}/run.sh`, "#!/bin/bash\n");
    utimesSync(`${home}/run.sh`, 1, 1);
    const report = await back();
    expect(report.conflicts).toEqual([]);
    expect(report.changed).toEqual(["run.sh"]);
  }));

test("changes at home alone stay", () =>
  onTrip(fill, async ({ home, back }) => {
    writeFileSync(`${home}/a`, "mine");
    writeFileSync(`${home}/mine`, "new");
    rmSync(`${home}/d`, { recursive: true });
    expect(await back()).toMatchObject(quiet);
    expect(existsSync(`${home}/d`)).toBe(false);
  }));

test("a file deleted at home and changed in the guest is put beside its place", () =>
  onTrip(fill, async ({ home, guest, back }) => {
    rmSync(`${home}/d`, { recursive: true });
    writeFileSync(`${guest}/d/e/ü`, "changed");
    expect((await back()).conflicts).toEqual([{ path: "d/e/ü", beside: "d/e/ü.capsem-guest" }]);
    expect(readdirSync(`${home}/d/e`)).toEqual(["ü.capsem-guest"]);
  }));

test("deletions come home only when asked, and never over a change", () =>
  onTrip(fill, async ({ home, guest, back }) => {
    rmSync(`${guest}/d`, { recursive: true });
    rmSync(`${guest}/a`);
    writeFileSync(`${home}/a`, "mine");
    expect([...(await back()).kept].sort()).toEqual(["a", "d", "d/e", "d/e/ü", "d/l"]);
    expect(existsSync(`${home}/d/e/ü`)).toBe(true);
    const report = await back(true);
    expect([...report.deleted].sort()).toEqual(["d", "d/e", "d/e/ü", "d/l"]);
    expect(report.kept).toEqual(["a"]);
    expect(readdirSync(home).sort()).toEqual(["a", "run.sh"]);
  }));

test("a folder that holds something new at home is not deleted", () =>
  onTrip(fill, async ({ home, guest, back }) => {
    rmSync(`${guest}/d`, { recursive: true });
    writeFileSync(`${home}/d/mine`, "new");
    await back(true);
    expect(readdirSync(`${home}/d`)).toEqual(["mine"]);
  }));

test("deleting never goes through a folder that became a link", () =>
  onTrip(fill, async ({ home, guest, back }) => {
    const outside = `${home}-outside`;
    mkdirSync(`${outside}/e`, { recursive: true });
    writeFileSync(`${outside}/e/ü`, "deep");
    rmSync(`${home}/d`, { recursive: true });
    symlinkSync(outside, `${home}/d`);
    rmSync(`${guest}/d`, { recursive: true });
    await back(true);
    expect(readFileSync(`${outside}/e/ü`, "utf8")).toBe("deep");
  }));

test("writing never goes through a folder that became a link at home", () =>
  onTrip(fill, async ({ home, guest, back }) => {
    const outside = `${home}-outside`;
    mkdirSync(outside);
    rmSync(`${home}/d`, { recursive: true });
    symlinkSync(outside, `${home}/d`);
    writeFileSync(`${guest}/d/e/ü`, "changed");
    expect((await back()).refused).toEqual([{ path: "d/e/ü", reason: "a link or file is in the way here" }]);
    expect(readdirSync(outside)).toEqual([]);
  }));

test("a file that became a folder and a folder that became a file come home safely", () =>
  onTrip(fill, async ({ home, guest, back }) => {
    rmSync(`${guest}/a`);
    mkdirSync(`${guest}/a`);
    writeFileSync(`${guest}/a/x`, "in");
    rmSync(`${guest}/d`, { recursive: true });
    writeFileSync(`${guest}/d`, "file");
    const report = await back();
    expect(readFileSync(`${home}/a/x`, "utf8")).toBe("in");
    expect(report.conflicts).toEqual([{ path: "d", beside: "d.capsem-guest" }]);
    expect(readFileSync(`${home}/d/e/ü`, "utf8")).toBe("deep");
  }));

test("a link that leads out comes home only if it was there before", () =>
  onTrip(
    (home) => symlinkSync("/usr/bin/env", `${home}/old`),
    async ({ guest, back }) => {
      symlinkSync("/etc/passwd", `${guest}/new`);
      const report = await back();
      expect(report.refused.map(({ path }) => path)).toEqual(["new"]);
      expect(report.changed).toEqual([]);
    },
  ));

test("a tree that breaks off deletes nothing", () =>
  onTrip(fill, async ({ home, guest, baseline }) => {
    rmSync(`${guest}/a`);
    const tar = packGuest(guest).subarray(0, 1024);
    await expect(comeHome(readTar(once(tar)), home, baseline, { deletes: true })).rejects.toThrow(
      /end mark|cut off/,
    );
    expect(existsSync(`${home}/a`)).toBe(true);
  }));

test(
  "2,000 small files go in and come home in seconds",
  () =>
    onTrip(
      (home) => {
        for (let at = 0; at < 2_000; at += 1) {
          if (at % 100 === 0) mkdirSync(`${home}/${at / 100}`);
          writeFileSync(`${home}/${Math.floor(at / 100)}/${at}`, String(at));
        }
      },
      async ({ guest, back }) => {
        for (let at = 0; at < 2_000; at += 2)
          writeFileSync(`${guest}/${Math.floor(at / 100)}/${at}`, "changed");
        expect((await back()).changed).toHaveLength(1_000);
      },
    ),
  60_000,
);
