import { Failure } from "@capsem/base";
import { errorObjectOf, toFailure } from "./cli-error.ts";
import type { Command } from "./command-table.ts";
import type { Context } from "./context.ts";
import { adviceOf, textOfFailure } from "./error-text.ts";
import { exitOfFailure } from "./exit-code.ts";
import { HELP_COLUMNS, HELP_COLUMNS_MAX } from "./limits.ts";
import { OUTPUT_FAILED, Output } from "./output.ts";
import { parse } from "./parse.ts";
import type { Powers } from "./powers.ts";
import { nodePowers } from "./powers-node.ts";
import { printableLines } from "./render.ts";
import { requestFault } from "./request-fault.ts";

async function main(argv: readonly string[], powers: Powers): Promise<number> {
  const output = new Output(powers);
  const asked = optionsOf(argv);
  const names = new Map<string, string>();
  const tried: Context["tried"] = { event: null };
  let words: Parameters<typeof adviceOf>[1] = null;
  let exits: Command["exits"] = ["run", "exec", "shell"].includes(
    argv.find((word) => !word.startsWith("-")) ?? "",
  )
    ? "job"
    : "capsem";
  try {
    const parsed = parse(argv);
    if (parsed.kind === "help") {
      const { helpJson, helpOf } = await import("./help.ts");
      if (asked.includes("--json")) await output.json(helpJson(parsed.topic));
      else await output.print(helpOf(parsed.topic, helpColumns(powers)));
      return 0;
    }
    const { command, args } = parsed;
    exits = command.exits;
    words = { name: command.name, args };
    const handler = await command.load();
    return await handler(contextOf(powers, output, args.flag("json"), names, tried), args);
  } catch (thrown) {
    const failure = toFailure(thrown);
    const typed = words === null ? null : { ...words, tried: tried.event };
    const text = textOfFailure(failure, names, typed);
    const isJson = asked.includes("--json");
    await tellFailure(output, failure, text, isJson);
    for (const line of isJson ? [] : adviceOf(failure, typed)) await output.say(line);
    if (failure.detail !== undefined && powers.env.CAPSEM_DEBUG === "1")
      await output.error(`${printableLines(failure.detail)}\n`);
    return exitOfFailure(requestFault(failure, typed) === null ? failure.kind : "usage", exits);
  }
}

function helpColumns({ stdout }: Powers): number {
  return Math.min(stdout.size()?.cols ?? HELP_COLUMNS, HELP_COLUMNS_MAX);
}

/** As JSON where that was asked for and standard output takes it, else as a line for people. */
async function tellFailure(output: Output, failure: Failure, text: string, json: boolean): Promise<void> {
  if (json && failure.kind !== OUTPUT_FAILED) {
    try {
      return await output.json(errorObjectOf(failure, text));
    } catch (thrown) {
      if (!(thrown instanceof Failure) || thrown.kind !== OUTPUT_FAILED) throw thrown;
    }
  }
  await output.say(text);
}

/** What may be an option of ours, also where the rest could not be parsed. */
function optionsOf(argv: readonly string[]): readonly string[] {
  const end = argv.indexOf("--");
  return end < 0 ? argv : argv.slice(0, end);
}

function contextOf(
  powers: Powers,
  output: Output,
  json: boolean,
  names: Map<string, string>,
  tried: Context["tried"],
): Context {
  let isHeld = () => false;
  return {
    powers,
    output,
    json,
    names,
    tried,
    client: async () => {
      const { connect } = await import("./connect.ts");
      const connected = await connect(powers, output);
      isHeld = connected.isHeld;
      return connected.client;
    },
    isHeld: () => isHeld(),
  };
}

const powers = nodePowers();
main(process.argv.slice(2), powers).then(
  (code) => powers.exit(code),
  (thrown: unknown) => {
    // Only a broken stderr or a bug in the error path comes here.
    process.exitCode = thrown instanceof Failure ? 1 : 70;
    throw thrown;
  },
);
