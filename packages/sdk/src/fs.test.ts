import { mkdirSync, symlinkSync, writeFileSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { VmFs } from "./fs.ts";
import { type Rig, startWays, WAYS } from "./testing/ways.ts";

let rig: Rig;
beforeAll(async () => {
  rig = await startWays();
});
afterAll(() => rig.close());

describe.each(WAYS)("over the %s", (way) => {
  let fs: VmFs;
  let folder: string;
  beforeAll(async () => {
    const client = rig.client(way);
    const { id } = await client.vms.create();
    fs = client.vm(id).fs;
    folder = `${rig.home}/workspaces/${id}`;
  });

  test("text and bytes are written, read and appended", async () => {
    await fs.writeFile("text", "grüße\n", { mode: 0o600 });
    expect(await fs.readFile("text", "utf8")).toBe("grüße\n");
    expect(await fs.readFile("text", { encoding: "utf-8" })).toBe("grüße\n");
    await fs.appendFile("text", "more");
    await fs.writeFile("text", new Uint8Array([33]), { flag: "a" });
    expect(await fs.readFile("text", "utf8")).toBe("grüße\nmore!");
    await fs.appendFile("new", "begun");
    const bytes = await fs.readFile("new");
    expect([bytes.constructor, [...bytes]]).toEqual([Uint8Array, [98, 101, 103, 117, 110]]);
    await fs.writeFile("empty", "");
    expect(await fs.readFile("empty")).toEqual(new Uint8Array());
  });

  test("all kinds of data can be written", async () => {
    async function* mixed() {
      yield "a";
      yield new Uint8Array([98]);
    }
    const stream = new ReadableStream<Uint8Array>({
      start: (controller) => {
        controller.enqueue(new Uint8Array([115]));
        controller.close();
      },
    });
    const kinds = { mixed: mixed(), stream, blob: new Blob(["blob"]), buffer: new Uint8Array([120]).buffer };
    const seen: string[] = [];
    for (const [name, data] of Object.entries(kinds)) {
      await fs.writeFile(name, data);
      seen.push(await fs.readFile(name, "utf8"));
    }
    expect(seen).toEqual(["ab", "s", "blob", "x"]);
  });

  test("stats and entries answer as those of node:fs do", async () => {
    await fs.mkdir("s/t", { recursive: true });
    await fs.writeFile("s/file", "12345", { mode: 0o640 });
    const stats = await fs.stat("s/file");
    expect([stats.isFile(), stats.isDirectory(), stats.size, stats.mode]).toEqual([true, false, 5, 0o100640]);
    expect(stats.mtime.getTime()).toBe(stats.mtimeMs);
    expect((await fs.stat("s/t")).isDirectory()).toBe(true);
    expect(await fs.readdir("s")).toEqual(["file", "t"]);
    await fs.writeFile("s/t/deep", "");
    expect(await fs.readdir("s", { recursive: true })).toEqual(["file", "t", "t/deep"]);
    const entries = await fs.readdir("s", { recursive: true, withFileTypes: true });
    expect(entries.map((entry) => [entry.parentPath, entry.name, entry.isFile()])).toEqual([
      ["s", "file", true],
      ["s", "t", false],
      ["s/t", "deep", true],
    ]);
  });

  test("links are followed by stat and not by lstat", async () => {
    await fs.mkdir("l/d", { recursive: true });
    await fs.writeFile("l/target", "123");
    symlinkSync("../target", `${folder}/l/d/link`);
    symlinkSync("d/link", `${folder}/l/twice`);
    symlinkSync("self", `${folder}/l/self`);
    symlinkSync("nowhere", `${folder}/l/broken`);
    expect((await fs.lstat("l/twice")).isSymbolicLink()).toBe(true);
    expect((await fs.stat("l/twice")).size).toBe(3);
    expect(await fs.readlink("l/twice")).toBe("d/link");
    expect([await fs.exists("l/broken"), await fs.exists("l/twice")]).toEqual([false, true]);
    await expect(fs.stat("l/self")).rejects.toMatchObject({ code: "ELOOP" });
    await expect(fs.readlink("l/target")).rejects.toMatchObject({ code: "EINVAL" });
  });

  test("a directory of many pages, and one deeper than a listing goes, is read whole", async () => {
    mkdirSync(`${folder}/many`);
    const names = Array.from({ length: 600 }, (_, at) => `f${String(at).padStart(4, "0")}`);
    for (const name of names) writeFileSync(`${folder}/many/${name}`, "");
    expect(await fs.readdir("many")).toEqual(names);
    const deep = Array.from({ length: 35 }, (_, at) => `d${at}`);
    mkdirSync(`${folder}/deep/${deep.join("/")}`, { recursive: true });
    const found = await fs.readdir("deep", { recursive: true });
    expect(found).toHaveLength(35);
    expect(found).toContain(deep.join("/"));
  });

  test("things are moved and removed", async () => {
    await fs.mkdir("m/n", { recursive: true });
    await fs.rename("m/n", "m/o");
    await fs.access("m/o");
    await expect(fs.rm("m")).rejects.toMatchObject({ code: "ENOTEMPTY", kind: "file_exists" });
    await fs.rm("m", { recursive: true });
    expect(await fs.exists("m")).toBe(false);
    await fs.rm("m", { force: true });
    await expect(fs.rm("m")).rejects.toMatchObject({ code: "ENOENT" });
  });

  test("errors have the codes of node:fs, with kind and path", async () => {
    await fs.writeFile("plain", "");
    await fs.mkdir("folder");
    const cases: [string, string, () => Promise<unknown>][] = [
      ["ENOENT", "none", () => fs.readFile("none", "utf8")],
      ["ENOENT", "none", () => fs.access("none")],
      ["EEXIST", "folder", () => fs.mkdir("folder")],
      ["EISDIR", "folder", () => fs.readFile("folder")],
      ["ENOTDIR", "plain", () => fs.readdir("plain")],
      ["ENOTDIR", "plain/x", () => fs.stat("plain/x")],
      ["EACCES", "/etc/shadow", () => fs.readFile("/etc/shadow")],
      ["ABORT_ERR", "plain", () => fs.readFile("plain", { signal: AbortSignal.abort() })],
    ];
    for (const [code, path, work] of cases) await expect(work()).rejects.toMatchObject({ code, path });
  });

  test("a stream gives the asked bytes, asks for nothing before it is read, and is left early", async () => {
    await fs.writeFile("ten", "0123456789");
    const count = rig.service.seen.length;
    const stream = fs.createReadStream("ten", { start: 2, end: 4 });
    expect(rig.service.seen.length).toBe(count);
    let text = "";
    for await (const part of stream) text += new TextDecoder().decode(part);
    expect(text).toBe("234");
    await fs.writeFile("large", new Uint8Array(8_000_000));
    for await (const part of fs.createReadStream("large")) {
      expect(part.length).toBeLessThan(8_000_000);
      break;
    }
    await expect(fs.createReadStream("none").next()).rejects.toMatchObject({ code: "ENOENT" });
  });
});
