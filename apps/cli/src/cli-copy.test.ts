import { execFileSync, spawn } from "node:child_process";
import {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { type CliRunner, createCliRunner, endOf } from "./testing/cli-runner.ts";

// Each step starts a program, which on a loaded machine takes its time.
vi.setConfig({ testTimeout: 60_000 });

let cli: CliRunner;
let count = 0;

beforeAll(async () => {
  cli = await createCliRunner();
  await cli.run(["create", "--name", "dev"]);
}, 60_000);
afterAll(() => cli.close());

/** A folder with a script, a link and a folder. */
function project(): string {
  const folder = join(cli.folder, `project-${count++}`);
  mkdirSync(join(folder, "src"), { recursive: true });
  writeFileSync(
    join(folder, "build.sh"),
    "mkdir -p out && tr a-z A-Z < src/in > out/result && chmod 750 out/result\n",
  );
  chmodSync(join(folder, "build.sh"), 0o755);
  writeFileSync(join(folder, "src/in"), "hällo");
  symlinkSync("src/in", join(folder, "link"));
  return folder;
}

test("a folder goes in, and what the command made comes home", async () => {
  const folder = project();
  const ran = await cli.run(["run", "--copy", folder, "--copy-back", "./build.sh; exit 5"]);
  expect(ran).toMatchObject({ code: 5, stderr: "" });
  expect(statSync(join(folder, "out/result")).mode & 0o777).toBe(0o750);
  expect(readFileSync(join(folder, "out/result"), "utf8")).toMatch(/^H.*LLO$/);
  expect(readlinkSync(join(folder, "link"))).toBe("src/in");
});

test("without --copy-back nothing comes home", async () => {
  const folder = project();
  expect((await cli.run(["run", "--copy", folder, "./build.sh && cat out/result"])).code).toBe(0);
  expect(existsSync(join(folder, "out"))).toBe(false);
});

test("a file changed on both sides gives 125, and names both", async () => {
  const folder = project();
  const mine = join(folder, "src/in");
  // The command runs on this host here, so that it can change the home side meanwhile.
  const ran = await cli.run([
    "run",
    "--copy",
    folder,
    "--copy-back",
    `echo guest > src/in; echo mine > ${mine}`,
  ]);
  expect(ran).toMatchObject({
    code: 125,
    stderr:
      "capsem: changed on both sides; yours is kept, the VM's is beside it:\n  src/in -> src/in.capsem-guest\n",
  });
  expect(readFileSync(mine, "utf8")).toBe("mine\n");
  expect(readFileSync(`${mine}.capsem-guest`, "utf8")).toBe("guest\n");
});

test("deletions come home with --delete alone", async () => {
  const folder = project();
  const kept = await cli.run(["run", "--copy", folder, "--copy-back", "rm link"]);
  expect(kept).toMatchObject({ code: 0 });
  expect(kept.stderr).toContain("--delete removes them");
  expect((await cli.run(["run", "--copy", folder, "--copy-back", "--delete", "rm link"])).stderr).toBe("");
  expect(readdirSync(folder).sort()).toEqual(["build.sh", "src"]);
});

test("links that lead out of the folder and pipes stay in the VM, with 125", async () => {
  const folder = project();
  const ran = await cli.run([
    "run",
    "--copy",
    folder,
    "--copy-back",
    "ln -s /etc/passwd p; mkfifo q; echo x > r",
  ]);
  expect(ran.code).toBe(125);
  expect(ran.stderr).toContain('p: its target "/etc/passwd" is outside the tree');
  expect(ran.stderr).toContain("q: it is not a file, folder or link");
  expect(readdirSync(folder).sort()).toEqual(["build.sh", "link", "r", "src"]);
});

test("options of copying that make no sense together are said before anything runs", async () => {
  for (const args of [
    ["--copy-back"],
    ["--delete"],
    ["--copy", "/nonexistent"],
    ["--copy", join(cli.folder, "cli.cjs")],
  ])
    expect((await cli.run(["run", ...args, "true"])).code).toBe(125);
});

test("cp copies files, folders and streams both ways", async () => {
  const folder = project();
  const out = join(cli.folder, "out-cp");
  const cp = async (...args: string[]) =>
    expect(await cli.run(["cp", ...args], { cwd: cli.folder })).toMatchObject({ code: 0, stderr: "" });
  await cp(folder, "dev:tree");
  await cp(join(folder, "src/in"), "dev:");
  await cp(`${folder}/.`, "dev:flat");
  expect(
    (await cli.run(["exec", "dev", "find . -type f | sort"])).stdout.split("\n").filter(Boolean),
  ).toEqual(["./flat/build.sh", "./flat/src/in", "./in", "./tree/build.sh", "./tree/src/in"]);
  await cp("dev:tree", out);
  expect(readlinkSync(join(out, "link"))).toBe("src/in");
  expect(statSync(join(out, "build.sh")).mode & 0o777).toBe(0o755);
  await cp("dev:/workspace/in", join(out, "copy"));
  expect(readFileSync(join(out, "copy"), "utf8")).toBe("hällo");
  await cp("dev:in", out);
  expect(readFileSync(join(out, "in"), "utf8")).toBe("hällo");
  expect((await cli.run(["cp", "-", "dev:piped"], { input: "from stdin" })).code).toBe(0);
  expect((await cli.run(["cp", "dev:piped", "-"])).stdout).toBe("from stdin");
});

test("a command's own exit code wins over what could not come home", async () => {
  const folder = project();
  const ran = await cli.run(["run", "--copy", folder, "--copy-back", "ln -s /etc/shadow evil; exit 3"]);
  expect(ran).toMatchObject({ code: 3, stderr: expect.stringContaining("not copied:\n  evil: ") });
});

test("cp to a pipe writes through it and leaves it a pipe", async () => {
  const pipe = join(cli.folder, "pipe");
  execFileSync("mkfifo", [pipe]);
  expect((await cli.run(["cp", "-", "dev:through"], { input: "through a pipe" })).code).toBe(0);
  const reader = spawn("cat", [pipe], { stdio: ["ignore", "pipe", "inherit"] });
  const read = endOf(reader);
  expect(await cli.run(["cp", "dev:through", pipe])).toMatchObject({ code: 0, stderr: "" });
  const kept = statSync(pipe).isFIFO();
  // A pipe that was replaced has no writer, and its reader no end.
  if (!kept) reader.kill();
  expect(kept).toBe(true);
  expect((await read).stdout).toBe("through a pipe");
  expect(readdirSync(cli.folder).filter((name) => name.startsWith(".capsem-"))).toEqual([]);
});

test("cp says which local folder does not exist", async () => {
  await cli.run(["cp", "-", "dev:here"], { input: "x" });
  expect(await cli.run(["cp", "dev:here", "no/such/file"])).toMatchObject({
    code: 1,
    stderr: 'capsem: Cannot copy to "no/such/file": folder "no" does not exist\n',
  });
  expect((await cli.run(["cp", "no/such/file", "dev:x"])).stderr).toBe(
    'capsem: Cannot copy "no/such/file": folder "no" does not exist\n',
  );
  expect((await cli.run(["cp", "nothing", "dev:x"])).stderr).toBe(
    'capsem: Cannot copy "nothing": it does not exist\n',
  );
});

test("cp says what it cannot do", async () => {
  const cases: [string[], number, RegExp][] = [
    [["dev:nothing", "x"], 1, /does not exist/],
    [["a", "b"], 2, /VM:PATH/],
    [["dev:a", "dev:b"], 2, /two VMs/],
    [["/dev/null", "dev:x"], 2, /not a file or folder/],
    [["/nonexistent", "dev:x"], 1, /does not exist/],
    [["dev:", "-"], 2, /it is a folder/],
  ];
  for (const [args, code, text] of cases) {
    const ran = await cli.run(["cp", ...args]);
    expect([ran.code, ran.stderr]).toEqual([code, expect.stringMatching(text)]);
  }
});

test("files are listed, made, renamed and removed", async () => {
  await cli.run(["create", "--name", "box"]);
  const files = async (...args: string[]) => {
    const ran = await cli.run(["files", ...args]);
    return `${ran.code} ${ran.stdout}${ran.stderr}`;
  };
  expect(await files("mkdir", "-p", "box", "a/b")).toBe("0 ");
  expect(await files("rename", "box", "a/b", "a/c")).toBe("0 ");
  expect(await files("list", "box", "a")).toMatch(/^0 drwx.* {2}c\n$/);
  expect(await files("stat", "box", "a", "--json")).toContain('"type":"directory"');
  expect(await files("rm", "box", "a")).toMatch(/^1 /);
  expect(await files("rm", "-r", "box", "a")).toBe("0 ");
  expect(await files("stat", "box", "a")).toMatch(/^1 .*does not exist\n$/);
  expect(await files("chmod", "box", "a")).toMatch(/^2 .*Cannot find command "files chmod"/);
});

test("a folder that comes out never replaces a pipe or socket that is in its place", async () => {
  const target = join(cli.folder, "special");
  mkdirSync(join(target, "src"), { recursive: true });
  execFileSync("mkfifo", [join(target, "src/in")]);
  await cli.run(["cp", `${project()}/.`, "dev:special"]);
  const ran = await cli.run(["cp", "dev:special/.", target]);
  expect(ran).toMatchObject({
    code: 1,
    stderr: "capsem: not copied:\n  src/in: a pipe, socket or device is in its place here\n",
  });
  expect(statSync(join(target, "src/in")).isFIFO()).toBe(true);
  // The rest came.
  expect(readlinkSync(join(target, "link"))).toBe("src/in");
});

test.each([
  ["a file", "huge/a", "8G"],
  // What a folder may have at most is less.
  ["a folder", "huge", "1000M"],
])("%s that is no more wanted in the midst of its copy leaves nothing half done", async (_, source, size) => {
  const folder = join(cli.folder, `half-${count++}`);
  mkdirSync(folder);
  expect((await cli.run(["exec", "dev", `mkdir -p huge && truncate -s ${size} huge/a`])).code).toBe(0);
  const child = cli.start(["cp", `dev:${source}`, `${folder}/`]);
  const ended = endOf(child);
  const temporary = () => (readdirSync(folder, { recursive: true }) as string[]).filter(isTemporary);
  await expect.poll(temporary, { timeout: 30_000 }).toHaveLength(1);
  child.kill("SIGINT");
  expect(await ended).toMatchObject({ code: 130, stderr: "" });
  expect(temporary()).toEqual([]);
});

function isTemporary(path: string): boolean {
  return path.includes(".capsem-");
}
