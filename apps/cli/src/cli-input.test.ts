import { spawn } from "node:child_process";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type CliRunner, createCliRunner, endOf } from "./testing/cli-runner.ts";

let cli: CliRunner;
beforeAll(async () => {
  cli = await createCliRunner();
  await cli.run(["create", "--name", "dev"]);
});
afterAll(() => cli.close());

/** What the command has as its standard input: nothing, or what we send it. */
const LOOK = "readlink /proc/self/fd/0; cat";

function shell(text: string) {
  const words = ["-c", text, process.execPath, join(cli.folder, "cli.cjs")];
  return endOf(spawn("bash", words, { env: { PATH: process.env.PATH ?? "", CAPSEM_HOME: cli.home, LOOK } }));
}

test.each([
  ["exec, with /dev/null", `"$0" "$1" exec dev "$LOOK" </dev/null`],
  ["exec, with a pipe that is closed", `: | "$0" "$1" exec dev "$LOOK"`],
  ["run, with /dev/null", `"$0" "$1" run "$LOOK" </dev/null`],
])("%s, has no input, so that a rule can name it", async (_, text) => {
  expect(await shell(text)).toMatchObject({ code: 0, stdout: "/dev/null\n" });
});

test("what comes from a file, or later through a pipe, is sent", async () => {
  const given = await shell(`printf 'a b' > "$1.in"; "$0" "$1" exec dev cat < "$1.in"`);
  expect(given).toMatchObject({ code: 0, stdout: "a b" });
  const late = await shell(`(sleep 0.3; printf late) | "$0" "$1" exec dev cat`);
  expect(late).toMatchObject({ code: 0, stdout: "late" });
});
