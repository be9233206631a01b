import { spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type Rig, startRig } from "./support/rig.ts";

const root = resolve(import.meta.dirname, "..");
let rig: Rig;
beforeAll(async () => {
  rig = await startRig({ pool: 1 });
});
afterAll(() => rig.stop());

/** The commands of a chapter's block, comments apart. */
function commandsOf(page: string, heading: string): { command: string; comment: string }[] {
  const text = readFileSync(join(root, page), "utf8");
  const chapter = text.slice(text.indexOf(heading));
  const block = /```sh\n([\s\S]*?)```/.exec(chapter)?.[1] ?? "";
  return block
    .trim()
    .split("\n")
    .map((line) => {
      const [command = "", comment = ""] = line.split(/\s+#\s/);
      return { command, comment };
    });
}

function shell(command: string, cwd: string): Promise<{ code: number | null; output: string }> {
  const capsem = `${process.execPath} ${join(root, "dist", "cli.cjs")}`;
  // A port of its own: this machine may have a gateway already.
  const words = command.replaceAll("./capsem", capsem).replace("gateway start", "gateway start --port 0");
  // A terminal of its own for the command that wants one.
  const real = command.includes(" shell ") ? `echo exit | script -qec '${words}' /dev/null` : words;
  return new Promise((done) => {
    const child = spawn("bash", ["-c", real], {
      cwd,
      env: { ...process.env, HOME: rig.home, CAPSEM_HOME: rig.home, CAPSEM_CACHE: rig.cache },
      stdio: ["ignore", "pipe", "pipe"],
      timeout: 90_000,
    });
    let output = "";
    const keep = (chunk: Buffer) => {
      output += chunk.toString();
    };
    child.stdout.on("data", keep);
    child.stderr.on("data", keep);
    child.on("close", (code) => done({ code, output }));
  });
}

/** Runs the commands of a chapter as they stand, and holds their comments to what happens. */
async function runChapter(page: string, heading: string, cwd: string): Promise<string[]> {
  const outputs: string[] = [];
  for (const { command, comment } of commandsOf(page, heading)) {
    const { code, output } = await shell(command, cwd);
    const expected = Number(/exit code (\d+)/.exec(comment)?.[1] ?? 0);
    expect([command, code, output]).toEqual([command, expected, output]);
    const printed = /prints (\S+)$/.exec(comment)?.[1];
    if (printed !== undefined) expect(output.trim()).toBe(printed);
    outputs.push(output);
  }
  return outputs;
}

test("every command of the README's working minute works as it says", async () => {
  const project = join(rig.home, "readme");
  mkdirSync(project);
  writeFileSync(join(project, "a.txt"), "a\n");
  expect((await runChapter("README.md", "## A working minute", project)).length).toBeGreaterThan(5);
  expect(readFileSync(join(project, "files.txt"), "utf8")).toContain("a.txt");
});

test("every command of the README's chapter about rules works as it says", async () => {
  const outputs = await runChapter("README.md", "## A rule, and the record", rig.home);
  expect(outputs.length).toBeGreaterThan(5);
  expect(outputs[2]).toMatch(/no-push.*people push/);
  expect(outputs.at(-2)).toMatch(/blocked.*git push[^\n]*no-push/);
});

test("every command of the README's chapter about tools works as it says", async () => {
  const outputs = await runChapter("README.md", "## Tools inside a VM", rig.home);
  expect(outputs.length).toBe(5);
  expect(outputs[2]).toMatch(/fetch_http\s+allow/);
  expect(outputs[3]).toMatch(/tool\s+done.*local__echo/);
});

test.each([
  ["README.md", "## From your agent"],
  ["docs/agents.md", "# Use Capsem from your agent"],
])("the commands of %s give an agent its tools", async (page, heading) => {
  const project = mkdtempSync(join(rig.home, "agent-"));
  try {
    for (const { command } of commandsOf(page, heading)) {
      const { code, output } = await shell(command, project);
      expect([command, code, output]).toEqual([command, 0, output]);
    }
    const written = readFileSync(join(rig.home, ".claude.json"), "utf8");
    expect(written).toContain("gateway.token");
    expect(written).not.toContain(readFileSync(join(rig.home, "run", "gateway.token"), "utf8").trim());
    expect((await shell("./capsem gateway status", project)).code).toBe(0);
  } finally {
    await shell("./capsem mcp uninstall claude; ./capsem gateway stop", project);
  }
});
