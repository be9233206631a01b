import { createHash } from "node:crypto";
import { readFile, stat } from "node:fs/promises";
import { join } from "node:path";
import * as z from "zod";
import { imageFailure } from "./error.ts";
import { DISK_BYTES, RECIPE_FILE_BYTES_MAX } from "./limits.ts";

/** Raise it when the builder's own code changes what it makes: old images then count as another recipe's. */
export const BUILDER_VERSION = 2;

/** The time of all files that the build itself makes: 2025-01-01. */
export const BUILD_EPOCH_S = 1_735_689_600;

const exactVersion = z.string().regex(/^\d+\.\d+\.\d+$/);
const packageName = z.string().regex(/^[a-z0-9][a-z0-9+.-]+$/);
const moduleName = z.string().regex(/^[a-z0-9_]+$/);

const recipeFile = z.strictObject({
  version: z.literal(1),
  nodeVersion: exactVersion,
  npmVersion: exactVersion,
  packages: z.array(packageName).min(1).max(200),
  initramfsModules: z.array(moduleName).max(100),
  rootModules: z.array(moduleName).max(100),
});

export type RecipeList = z.infer<typeof recipeFile>;

/** Everything that decides what an image is, but for the package versions that the day's sources offer. */
export interface Recipe {
  readonly list: RecipeList;
  readonly init: string;
  /** The build's scripts by file name. They are run as they were read: an edit in between has no part. */
  readonly scripts: ReadonlyMap<string, string>;
  readonly platform: Platform;
  /** SHA-256 over all inputs, hex. */
  readonly hash: string;
}

/** The names of one machine type at Debian and at npm. */
export interface Platform {
  readonly codename: string;
  readonly debianArch: string;
  readonly kernelPackage: string;
  readonly nodePackage: string;
}

const ARCHES: Readonly<Record<string, { readonly debian: string; readonly npm: string }>> = {
  x64: { debian: "amd64", npm: "linux-x64" },
  arm64: { debian: "arm64", npm: "linux-arm64" },
};

/** `osRelease` is the text of the host's os-release file: the image is of the host's own Debian release. */
export function parsePlatform(arch: string, osRelease: string): Platform {
  const names = ARCHES[arch];
  if (names === undefined) {
    throw imageFailure(
      "image_host_unsupported",
      `Cannot build the image: machine type '${arch}' is not known`,
    );
  }
  const field = (name: string): string | undefined =>
    new RegExp(`^${name}="?([a-z0-9.-]+)"?$`, "m").exec(osRelease)?.[1];
  const codename = field("VERSION_CODENAME");
  if (field("ID") !== "debian" || codename === undefined) {
    throw imageFailure(
      "image_host_unsupported",
      `Cannot build the image: this host is '${field("ID") ?? "unknown"}', the build needs a Debian release`,
    );
  }
  return {
    codename,
    debianArch: names.debian,
    kernelPackage: `linux-image-cloud-${names.debian}`,
    nodePackage: `node-${names.npm}`,
  };
}

/** The files of the recipe folder that become part of the image or make it. `ginit` is on the agent disk. */
const SCRIPTS = ["before-packages.sh", "finish-root.sh", "make-disk.sh"] as const;
const RECIPE_FILES = ["recipe.json", "init", ...SCRIPTS] as const;

export async function readRecipe(dir: string, platform: Platform): Promise<Recipe> {
  const texts = new Map<string, string>();
  for (const name of RECIPE_FILES) texts.set(name, await readRecipeFile(join(dir, name)));
  const list = parseRecipeList(texts.get("recipe.json") ?? "");
  const inputs = [BUILDER_VERSION, BUILD_EPOCH_S, DISK_BYTES, platform, list, [...texts]];
  return {
    list,
    init: texts.get("init") ?? "",
    scripts: new Map(SCRIPTS.map((name) => [name, texts.get(name) ?? ""])),
    platform,
    hash: createHash("sha256").update(JSON.stringify(inputs)).digest("hex"),
  };
}

export function parseRecipeList(text: string): RecipeList {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (cause) {
    throw imageFailure("image_build_failed", "Cannot read the image recipe: recipe.json is not JSON", {
      cause,
    });
  }
  const result = recipeFile.safeParse(value);
  if (result.success) return result.data;
  throw imageFailure(
    "image_build_failed",
    `Cannot read the image recipe: ${z.prettifyError(result.error).replaceAll("\n", "; ")}`,
  );
}

export async function readRecipeFile(path: string): Promise<string> {
  try {
    const { size } = await stat(path);
    if (size <= RECIPE_FILE_BYTES_MAX) return await readFile(path, "utf8");
  } catch (cause) {
    throw imageFailure("image_build_failed", `Cannot read recipe file '${path}': not readable`, { cause });
  }
  throw imageFailure(
    "image_build_failed",
    `Cannot read recipe file '${path}': more than ${RECIPE_FILE_BYTES_MAX} bytes`,
  );
}
