import { dirname, join } from "node:path";
import { parseArgs } from "node:util";
import { Failure, messageOf } from "@capsem/base";

export const USAGE = `usage: image build --cache DIR [--agent FILE --helper FILE] [--recipe DIR] [--refresh] [--json-progress]
       image verify --cache DIR DIGEST

build   makes the guest image, or finds it in the cache, and prints its digest and folder as JSON
verify  reads an image of the cache whole and compares it with its manifest
`;

export type Arguments =
  | {
      readonly kind: "build";
      readonly cacheDir: string;
      readonly recipeDir: string;
      readonly agent: { readonly guestBundlePath: string; readonly helperPath: string } | undefined;
      readonly refresh: boolean;
      readonly jsonProgress: boolean;
    }
  | { readonly kind: "verify"; readonly cacheDir: string; readonly digest: string }
  | { readonly kind: "help" };

/** `programPath` is the bundle in `dist/`; the recipe lies beside that folder unless named. */
export function parseArguments(words: readonly string[], programPath: string): Arguments {
  const { values, positionals } = parseWords(words);
  const [verb, digest, ...rest] = positionals;
  if (values.help === true) return { kind: "help" };
  if (values.cache === undefined) throw usageFailure("--cache is missing");
  if (verb === "verify" && digest !== undefined && rest.length === 0) {
    return { kind: "verify", cacheDir: values.cache, digest };
  }
  if (verb !== "build" || digest !== undefined) throw usageFailure("expected 'build' or 'verify DIGEST'");
  if ((values.agent === undefined) !== (values.helper === undefined)) {
    throw usageFailure("--agent and --helper go together");
  }
  const hasAgent = values.agent !== undefined && values.helper !== undefined;
  return {
    kind: "build",
    cacheDir: values.cache,
    recipeDir: values.recipe ?? join(dirname(dirname(programPath)), "guest-image", "recipe"),
    agent: hasAgent ? { guestBundlePath: values.agent ?? "", helperPath: values.helper ?? "" } : undefined,
    refresh: values.refresh ?? false,
    jsonProgress: values["json-progress"] ?? false,
  };
}

function parseWords(words: readonly string[]) {
  try {
    return parseArgs({
      args: [...words],
      allowPositionals: true,
      options: {
        agent: { type: "string" },
        cache: { type: "string" },
        help: { type: "boolean", short: "h" },
        helper: { type: "string" },
        "json-progress": { type: "boolean" },
        recipe: { type: "string" },
        refresh: { type: "boolean" },
      },
    });
  } catch (cause) {
    throw usageFailure(messageOf(cause));
  }
}

function usageFailure(reason: string): Failure {
  return new Failure("usage", `Cannot read the arguments: ${reason}`);
}
