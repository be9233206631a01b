import {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, beforeEach, expect, test, vi } from "vitest";
import { type CliRunner, createCliRunner } from "./testing/cli-runner.ts";

// Each step starts a program, which on a loaded machine takes its time.
vi.setConfig({ testTimeout: 60_000 });

let cli: CliRunner;
let count = 0;

beforeAll(async () => {
  cli = await createCliRunner();
  await cli.run(["create", "--name", "dev"]);
  for (const act of ["import", "export"]) {
    const match = `file.${act}.name == "secret"`;
    const words = ["--match", match, "--action", "block", "--reason", "it stays"];
    await cli.run(["rules", "put", `no-${act}`, ...words]);
  }
}, 60_000);
afterAll(() => cli.close());
beforeEach(() => {
  count += 1;
});

const LEFT =
  "capsem: links were left out, because a rule judges each file and a link has none of its own:\n  link\n";

function project(names: readonly string[] = ["a", "sub/deep/b"]): string {
  const folder = join(cli.folder, `project-${count}`);
  mkdirSync(join(folder, "sub/deep"), { recursive: true });
  mkdirSync(join(folder, "empty"));
  for (const name of names) writeFileSync(join(folder, name), `content of ${name}`);
  return folder;
}

test("where a rule judges each file, a folder goes in file by file, and what is refused is named", async () => {
  const folder = project(["a", "none", "secret", "sub/deep/b", "sub/secret"]);
  writeFileSync(join(folder, "none"), "");
  chmodSync(join(folder, "a"), 0o750);
  symlinkSync("a", join(folder, "link"));
  const refused = "it stays (rule profiles.rules.no-import)\n";
  expect(await cli.run(["cp", folder, "dev:in"])).toEqual({
    code: 1,
    signal: null,
    stdout: "",
    stderr: `${LEFT}capsem: not copied:\n  secret: ${refused}  sub/secret: ${refused}`,
  });
  const there = await cli.run(["exec", "dev", "cd in && find * | sort && stat -c %a a && cat sub/deep/b"]);
  expect(there.stdout).toBe("a\nempty\nnone\nsub\nsub/deep\nsub/deep/b\n750\ncontent of sub/deep/b");
  const json = await cli.run(["cp", "--json", `${folder}/.`, "dev:in"]);
  expect(JSON.parse(json.stdout)).toMatchObject({
    path: "in",
    refused: [{ path: "secret" }, { path: "sub/secret" }],
  });
});

test("a folder that is refused keeps what is in it here, told once", async () => {
  const words = ["--match", 'file.create.name == "deep"', "--action", "block", "--reason", "not that"];
  await cli.run(["rules", "put", "no-deep", ...words]);
  expect(await cli.run(["cp", project(), "dev:closed"])).toMatchObject({
    code: 1,
    stderr: "capsem: not copied:\n  sub/deep: not that (rule profiles.rules.no-deep)\n",
  });
  await cli.run(["rules", "delete", "no-deep"]);
  expect((await cli.run(["exec", "dev", "find closed | sort"])).stdout).toBe(
    "closed\nclosed/a\nclosed/empty\nclosed/sub\n",
  );
});

test("a folder comes out file by file, without what is refused and without links", async () => {
  const make =
    "mkdir -p out/sub/empty && cd out && echo a > a && echo s > secret && echo s > sub/secret && echo b > sub/b";
  await cli.run(["exec", "dev", `${make} && chmod 755 a && ln -s a link && mkfifo pipe`]);
  const target = join(cli.folder, `out-${count}`);
  const refused = "it stays (rule profiles.rules.no-export)\n";
  expect(await cli.run(["cp", "dev:out", target])).toMatchObject({
    code: 1,
    stderr: `${LEFT}capsem: not copied:\n  pipe: it is not a file, folder or link\n  secret: ${refused}  sub/secret: ${refused}`,
  });
  expect(readdirSync(target).sort()).toEqual(["a", "sub"]);
  expect(readdirSync(join(target, "sub")).sort()).toEqual(["b", "empty"]);
  expect(statSync(join(target, "a")).mode & 0o777).toBe(0o755);
});

test("no command runs where --copy was not complete", async () => {
  const folder = project(["a", "secret"]);
  const ran = await cli.run(["run", "--copy", folder, "echo ran"]);
  expect(ran).toMatchObject({ code: 125, stdout: "" });
  expect(ran.stderr).toBe(
    `capsem: not copied:\n  secret: it stays (rule profiles.rules.no-import)\ncapsem: Cannot run the command: 1 part of "${folder}" not copied in\n`,
  );
});

test("what may not come home is no deletion, and the rest comes", async () => {
  const words = ["--match", 'file.export.name == "kept"', "--action", "block", "--reason", "not out"];
  await cli.run(["rules", "put", "no-kept", ...words]);
  const folder = project(["a", "kept", "sub/deep/b"]);
  const ran = await cli.run([
    "run",
    "--copy",
    folder,
    "--copy-back",
    "--delete",
    "echo new > made; echo mine > secret; rm a; echo more >> sub/deep/b",
  ]);
  expect(ran).toMatchObject({
    code: 125,
    stderr:
      "capsem: not copied:\n  kept: not out (rule profiles.rules.no-kept)\n  secret: it stays (rule profiles.rules.no-export)\n",
  });
  expect(readdirSync(folder).sort()).toEqual(["empty", "kept", "made", "sub"]);
  expect(readFileSync(join(folder, "sub/deep/b"), "utf8")).toBe("content of sub/deep/bmore\n");
  expect(existsSync(join(folder, "secret"))).toBe(false);
});
