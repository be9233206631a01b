import { spawn } from "node:child_process";
import { join } from "node:path";
import { Failure } from "@capsem/base";
import * as z from "zod";
import { IMAGE_LIMITS } from "./limits.ts";

const found = z.object({
  image: z.object({ digest: z.string(), dir: z.string() }),
  agent: z.object({ digest: z.string(), path: z.string() }),
});
export type ImageFiles = z.infer<typeof found>;

/**
 * Asks the image program for the current image and the agent's disk: at once when the cache has them, else it
 * builds them. A process of its own, because building parses what the network sends.
 */
export async function findImageFiles(programFolder: string, cache: string): Promise<ImageFiles> {
  const text = await run([
    join(programFolder, "image.cjs"),
    ...["build", "--cache", cache],
    ...["--agent", join(programFolder, "guest.cjs"), "--helper", join(programFolder, "capsem-helper")],
  ]);
  const parsed = found.safeParse(JSON.parse(text));
  if (!parsed.success)
    throw new Failure("image_missing", "Cannot find the image: its program said something else");
  return parsed.data;
}

function run(words: readonly string[]): Promise<string> {
  return new Promise((resolve, reject) => {
    const child = spawn(process.execPath, words, {
      stdio: ["ignore", "pipe", "pipe"],
      timeout: IMAGE_LIMITS.timeoutMs,
    });
    let output = "";
    let errors = "";
    child.stdout.on("data", (chunk: Buffer) => {
      output = (output + chunk.toString("utf8")).slice(-IMAGE_LIMITS.outputCharactersMax);
    });
    child.stderr.on("data", (chunk: Buffer) => {
      errors = (errors + chunk.toString("utf8")).slice(-IMAGE_LIMITS.outputCharactersMax);
    });
    child.on("error", (cause) =>
      reject(new Failure("image_missing", "Cannot start the image program", { cause })),
    );
    child.on("close", (code) => {
      if (code === 0) return resolve(output);
      const [line = ""] = errors.trim().split("\n").slice(-1);
      reject(
        new Failure("image_missing", `Cannot get the image: ${line || `exit code ${code}`}`, {
          detail: errors,
        }),
      );
    });
  });
}
