import { afterAll, beforeAll, expect, test } from "vitest";
import { type CliRunner, createCliRunner } from "./testing/cli-runner.ts";

let cli: CliRunner;
beforeAll(async () => {
  cli = await createCliRunner();
});
afterAll(() => cli.close());

test("rules evaluate of a VM that is not there says how to ask of one that is still to come", async () => {
  const words = ["rules", "evaluate", "--command", "git push"];
  expect(await cli.run([...words, "--vm", "it's"])).toMatchObject({
    code: 1,
    stdout: "",
    stderr:
      'capsem: Cannot find VM "it\'s": no VM has this name or id; of one that is still to be made, ' +
      "--field 'vm.name=it'\\''s' in place of --vm says the name\n",
  });
  expect(await cli.run([...words, "--field", "vm.name=it's"])).toMatchObject({ code: 0, stderr: "" });
});
