import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import * as z from "zod";
import { type BuildContext, runStep, toolEnv } from "./build-context.ts";
import { imageFailure } from "./error.ts";
import { DOWNLOAD_TIMEOUT_MS, STEP_TIMEOUT_MS } from "./limits.ts";

const packed = z.array(z.object({ name: z.string(), version: z.string(), filename: z.string() }));

/** The archives of Node and npm as npm stored them, checked against the registry's own checksums by npm. */
export interface NodeArchives {
  readonly node: string;
  readonly npm: string;
}

/** Fetches Node and npm by package name; npm's own settings say from where. */
export async function downloadNode(context: BuildContext): Promise<NodeArchives> {
  const { list, platform } = context.recipe;
  const dir = join(context.scratchDir, "npm");
  await mkdir(dir, { recursive: true });
  const output = await runStep(context, {
    program: "npm",
    args: [
      "pack",
      `${platform.nodePackage}@${list.nodeVersion}`,
      `npm@${list.npmVersion}`,
      "--json",
      "--ignore-scripts",
      `--pack-destination=${dir}`,
    ],
    cwd: dir,
    env: npmEnv(context),
    timeoutMs: DOWNLOAD_TIMEOUT_MS,
    purpose: "download Node and npm",
  });
  const files = parsePacked(output);
  const archive = (name: string): string => {
    const file = files.find((each) => each.name === name)?.filename;
    if (file === undefined) {
      throw imageFailure(
        "image_build_failed",
        `Cannot download Node and npm: npm stored no '${name}' package`,
      );
    }
    return join(dir, file);
  };
  return { node: archive(platform.nodePackage), npm: archive("npm") };
}

function parsePacked(output: string): z.infer<typeof packed> {
  try {
    return packed.parse(JSON.parse(output));
  } catch (cause) {
    throw imageFailure("image_build_failed", "Cannot download Node and npm: npm's answer is not a list", {
      cause,
    });
  }
}

/** npm is the host's, wherever it is, with the user's settings; those may come by environment too. */
function npmEnv(context: BuildContext): Record<string, string> {
  const env = toolEnv(context.powers.env);
  for (const [name, value] of Object.entries(context.powers.env)) {
    if (value !== undefined && /^(PATH|HOME|NODE_EXTRA_CA_CERTS|npm_config_.*)$/i.test(name))
      env[name] = value;
  }
  return env;
}

/** Unpacks what the guest needs of them: no headers, no manuals. */
export async function unpackNode(
  context: BuildContext,
  archives: NodeArchives,
  stageDir: string,
): Promise<void> {
  const unpack = (archive: string, into: string, args: readonly string[]): Promise<string> =>
    runStep(context, {
      program: "tar",
      args: ["-xzf", archive, "-C", into, "--strip-components=1", "--no-same-owner", ...args],
      timeoutMs: STEP_TIMEOUT_MS,
      purpose: "unpack Node",
    });
  const npmDir = join(stageDir, "usr/local/lib/node_modules/npm");
  await mkdir(npmDir, { recursive: true });
  await mkdir(join(stageDir, "usr/local/bin"), { recursive: true });
  await unpack(archives.node, join(stageDir, "usr/local"), ["package/bin/node"]);
  await unpack(archives.npm, npmDir, ["--exclude=package/docs", "--exclude=package/man"]);
}
