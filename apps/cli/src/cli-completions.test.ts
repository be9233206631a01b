import { execFileSync } from "node:child_process";
import { chmodSync, mkdirSync, writeFileSync } from "node:fs";
import { delimiter, join } from "node:path";
import { HOST_LOG_SOURCES } from "@capsem/api";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { CLIENT_NAMES } from "./command/mcp-clients.ts";
import { COMMANDS } from "./command-table.ts";
import { firstWords, typedNames, valuedOptions, wordRows } from "./completion/word-table.ts";
import { findProgram } from "./doctor/program.ts";
import { type CliRunner, createCliRunner } from "./testing/cli-runner.ts";

// Each step starts a shell and a program, which on a loaded machine takes its time.
vi.setConfig({ testTimeout: 120_000 });

let cli: CliRunner;
let path = "";

beforeAll(async () => {
  cli = await createCliRunner();
  await cli.run(["create", "--name", "dev"]);
  await cli.run(["create", "--name", "demo"]);
  await cli.run(["create", "--name", "gone"]);
  await cli.run(["delete", "gone"]);
  const match = 'process.command.contains("push")';
  await cli.run(["rules", "put", "no-push", "--match", match, "--action", "block"]);
  await cli.run(["credentials", "inject", "github", "--host", "example.com"], { input: "a long secret" });
  const bin = join(cli.folder, "bin");
  mkdirSync(bin);
  const program = join(bin, "capsem");
  writeFileSync(program, `#!/bin/sh\nexec "${process.execPath}" "${join(cli.folder, "cli.cjs")}" "$@"\n`);
  chmodSync(program, 0o755);
  path = `${bin}${delimiter}${process.env.PATH ?? ""}`;
  writeFileSync(join(cli.folder, "notes.txt"), "x");
  for (const shell of ["bash", "zsh", "fish"]) {
    writeFileSync(join(cli.folder, `capsem.${shell}`), (await cli.run(["completions", shell])).stdout);
  }
}, 60_000);
afterAll(() => cli.close());

type Complete = (words: readonly string[]) => string[];

function run(program: string, args: readonly string[]): string[] {
  const env = { PATH: path, CAPSEM_HOME: cli.home, HOME: cli.folder };
  const said = execFileSync(program, args, { cwd: cli.folder, env, encoding: "utf8" });
  return said.split("\n").filter((line) => line !== "");
}

/** As bash splits words: an option's = is one of its own. */
const bash: Complete = (words) => {
  const line = words.map((word) => `'${word}'`).join(" ");
  const script = `source ./capsem.bash; COMP_WORDS=(${line}); COMP_CWORD=${words.length - 1}; _capsem; printf '%s\\n' "\${COMPREPLY[@]}"`;
  return run("bash", ["--norc", "--noprofile", "-c", script]);
};

/** Zsh and fish match what is typed themselves; here it is done for zsh, whose editor is not running. */
const zsh: Complete = (words) => {
  const line = words.map((word) => `'${word}'`).join(" ");
  const cur = words.at(-1) ?? "";
  const found = run("zsh", ["-f", "-c", `source ./capsem.zsh; _capsem_find ${line}; print -l -- $reply`]);
  return found.filter((word) => word.startsWith(cur));
};

const fish: Complete = (words) =>
  run("fish", ["--no-config", "-c", `source ./capsem.fish; complete -C '${words.join(" ")}'`]).map(
    (line) => line.split("\t")[0] ?? "",
  );

const SHELLS: [string, Complete][] = [
  ["bash", bash],
  ["zsh", zsh],
  ["fish", fish],
];

const CASES: { typed: string[]; offers: string[] }[] = [
  { typed: ["sta"], offers: ["start", "stats", "status"] },
  { typed: ["files", "r"], offers: ["rename", "rm"] },
  { typed: ["gateway", ""], offers: ["rotate", "start", "status", "stop"] },
  { typed: ["info", "de"], offers: ["demo", "dev"] },
  { typed: ["delete", "dev", "dem"], offers: ["demo"] },
  { typed: ["exec", "-u", "root", "de"], offers: ["demo", "dev"] },
  { typed: ["exec", "--cpu"], offers: [] },
  { typed: ["exec", "--ti"], offers: ["--timeout"] },
  { typed: ["exec", "--user", "r"], offers: ["root"] },
  { typed: ["triage", "--vm", "dem"], offers: ["demo"] },
  { typed: ["logs", "dev", "--source", ""], offers: ["console", "guest", "owner"] },
  {
    typed: ["host-logs", ""],
    offers: ["aggregator", "builtin", "egress", "gateway", "ledger", "owner", "proxy", "service"],
  },
  { typed: ["completions", "f"], offers: ["fish"] },
  { typed: ["mcp", "install", ""], offers: ["claude", "codex", "cursor", "gemini", "vscode"] },
  { typed: ["mcp", "uninstall", "co"], offers: ["codex"] },
  { typed: ["mcp", "install", "claude", "--scope", "l"], offers: ["local"] },
  { typed: ["asks", "approve", "abcdef", "--scope", ""], offers: ["always", "once", "vm"] },
  { typed: ["rules", "put", "x", "--action", ""], offers: ["allow", "ask", "block"] },
  { typed: ["events", "dev", "--action", ""], offers: ["allow", "ask", "block"] },
  { typed: ["timeline", "go"], offers: ["gone"] },
  { typed: ["ledger", "verify", "d"], offers: ["demo", "dev"] },
  { typed: ["rules", "delete", ""], offers: ["no-push"] },
  { typed: ["settings", "get", "limits.p"], offers: ["limits.pool_size"] },
  { typed: ["settings", "reset", "profiles.preset", "conf"], offers: ["confinement.allow_unconfined"] },
  { typed: ["credentials", "delete", "g"], offers: ["github"] },
  { typed: ["rules", "replay", "--vm", "dem"], offers: ["demo"] },
  { typed: ["mcp", "tools", "l"], offers: ["local"] },
  { typed: ["mcp", "approve", ""], offers: ["handbook", "local"] },
  { typed: ["mcp", "permit", "local", "echo", "b"], offers: ["block"] },
  { typed: ["mcp", "add", "x", "y", "--transport", ""], offers: ["auto", "http", "sse"] },
  { typed: ["help", "ga"], offers: ["gateway"] },
  { typed: ["help", "gateway", "st"], offers: ["start", "status", "stop"] },
];

for (const [shell, complete] of SHELLS) {
  const isThere = findProgram(shell, process.env.PATH ?? "") !== null;
  const options = { skip: !isThere, meta: { skipReason: `${shell} is not installed` } };
  test(`${shell} completes commands, options, VMs and closed lists`, options, () => {
    for (const { typed, offers } of CASES) {
      expect([...new Set(complete(["capsem", ...typed]))].sort(), typed.join(" ")).toEqual(offers);
    }
  });
}

test("bash completes a value behind an option's =, files, and a VM's place", () => {
  expect(bash(["capsem", "exec", "--user", "=", "ro"])).toEqual(["root"]);
  expect(bash(["capsem", "exec", "--user", "="])).toEqual(["user", "root"]);
  expect(bash(["capsem", "run", "--copy", "not"])).toEqual(["notes.txt"]);
  expect(bash(["capsem", "cp", "not"])).toEqual(["notes.txt"]);
  expect(bash(["capsem", "cp", "notes.txt", "dev"])).toEqual(["dev:"]);
  expect(bash(["capsem", "exec", "dev", "--", "l"])).toEqual([]);
  expect(bash(["capsem", "frobnicate", ""])).toEqual([]);
});

test("bash completes an ask that waits by the characters that are shown", async () => {
  await cli.run(["rules", "put", "ask", "--match", 'process.command.contains("held")', "--action", "ask"]);
  const held = cli.start(["exec", "dev", "echo held"]);
  const ids = () => bash(["capsem", "asks", "approve", ""]);
  await expect.poll(ids, { timeout: 30_000 }).toEqual([expect.stringMatching(/^[a-z2-7]{6}$/)]);
  held.kill();
});

test("completing starts no service", async () => {
  await cli.run(["service", "stop"]);
  expect(bash(["capsem", "info", "de"])).toEqual([]);
  expect((await cli.run(["service", "status"])).stdout).toBe("not running\n");
  await cli.run(["create", "--name", "dev"]);
});

test("an unknown shell is told which are known", async () => {
  expect(await cli.run(["completions", "csh"])).toMatchObject({
    code: 2,
    stderr: 'capsem: Cannot complete in "csh": it is one of bash, zsh, fish\n',
  });
});

test("the table that the scripts are made of has every command, and no option is a flag here and takes a value there", () => {
  const rows = wordRows(COMMANDS);
  for (const command of COMMANDS) expect(rows.some(({ key }) => key === command.name)).toBe(true);
  const valued = new Set(valuedOptions(rows));
  for (const option of rows.flatMap(({ options }) => options)) {
    for (const name of typedNames(option)) expect(valued.has(name), name).toBe(option.value !== undefined);
  }
  expect(firstWords(rows)).toEqual([...new Set(firstWords(rows))]);
  const sources = COMMANDS.find(({ name }) => name === "host-logs")?.choices?.SOURCE;
  expect(sources).toEqual(HOST_LOG_SOURCES);
  for (const name of ["mcp install", "mcp uninstall"]) {
    expect(COMMANDS.find((command) => command.name === name)?.choices?.CLIENT).toEqual(CLIENT_NAMES);
  }
});
