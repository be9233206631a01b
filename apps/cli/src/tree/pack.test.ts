import { execFileSync } from "node:child_process";
import { mkdirSync, readFileSync, readlinkSync, symlinkSync, writeFileSync } from "node:fs";
import { expect, test } from "vitest";
import { packTree } from "./pack.ts";
import { gather, inFolder } from "./tree-testing.ts";

test("GNU tar unpacks what is packed: long and unicode names, links, empty folders", () =>
  inFolder(async (outer) => {
    const from = `${outer}/from`;
    const to = `${outer}/to`;
    const long = `${"ü".repeat(60)}/${"n".repeat(200)}`;
    mkdirSync(`${from}/${"ü".repeat(60)}`, { recursive: true });
    mkdirSync(`${from}/empty`);
    mkdirSync(to);
    writeFileSync(`${from}/${long}`, Buffer.alloc(300_000, 3));
    symlinkSync(`/${"t".repeat(120)}`, `${from}/link`);
    const { tar, baseline } = packTree(from, { warn: (text) => expect.fail(text) });
    execFileSync("tar", ["-C", to, "-xpf", "-"], { input: await gather(tar) });
    expect(readFileSync(`${to}/${long}`)).toEqual(Buffer.alloc(300_000, 3));
    expect(readlinkSync(`${to}/link`)).toBe(`/${"t".repeat(120)}`);
    expect([...baseline.keys()].sort()).toEqual(["empty", "link", "ü".repeat(60), long].sort());
  }));

test("pipes are skipped with a warning, and nothing is read through a link", () =>
  inFolder(async (folder) => {
    execFileSync("mkfifo", [`${folder}/pipe`]);
    symlinkSync("/etc", `${folder}/etc`);
    const warnings: string[] = [];
    const { tar, baseline } = packTree(folder, { warn: (text) => warnings.push(text) });
    await gather(tar);
    expect(warnings).toEqual(['skipped "pipe": it is not a file, folder or link']);
    expect([...baseline]).toEqual([["etc", { kind: "symlink", target: "/etc" }]]);
  }));
