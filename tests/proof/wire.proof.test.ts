import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { expect, test } from "vitest";
import { NODE_22, openClientHome } from "./clients.ts";
import { skipUnless } from "./skip.ts";
import { readWireLog } from "./wire-log.ts";

/** What the recorder keeps of a server that prints this. */
async function record(script: string) {
  const home = openClientHome();
  try {
    const log = join(home.path, "wire.jsonl");
    const args = [join(import.meta.dirname, "wire-tap.ts"), log, process.execPath, "-e", script];
    const stdout = execFileSync(NODE_22, args, { env: home.env, input: "", timeout: 20_000 }).toString();
    return { stdout, wire: await readWireLog(log).catch((cause: unknown) => `refused: ${cause}`) };
  } finally {
    await home.remove();
  }
}

test(
  "the recorder passes what is protocol, and tells how the server ended",
  skipUnless("inspector"),
  async () => {
    const line = '{"jsonrpc":"2.0","id":1,"result":{"text":"größer"}}\n';
    const { stdout, wire } = await record(`process.stdout.write(${JSON.stringify(line)})`);
    expect(stdout).toBe(line);
    expect(wire).toMatchObject({ answered: [JSON.parse(line)], end: { code: 0, signal: null } });
  },
);

test.each([
  ["a word that is no message", "console.log('ready')"],
  ["a message of no version", "console.log('{}')"],
  ["half a line", `process.stdout.write('{"jsonrpc":"2.0"')`],
])("the recorder catches a server that prints %s", skipUnless("inspector"), async (_what, script) => {
  expect((await record(script)).wire).toMatch(/^refused: /);
});
