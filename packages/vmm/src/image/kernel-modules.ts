import { imageFailure } from "./error.ts";

/** What a module file says of itself in its `.modinfo` section. */
export interface ModuleFacts {
  readonly name: string;
  readonly depends: readonly string[];
  readonly aliases: readonly string[];
}

/** A module and the file that holds it; `path` is relative to the kernel's module folder. */
export interface KernelModule extends ModuleFacts {
  readonly path: string;
  readonly bytes: Uint8Array;
}

const FILE_NAME = /^(.+)\.ko(\.xz)?$/;

/** `virtio-rng.ko` and `virtio_rng.ko.xz` both hold the module `virtio_rng`; other files hold none. */
export function moduleNameOf(fileName: string): string | undefined {
  return FILE_NAME.exec(fileName)?.[1]?.replaceAll("-", "_");
}

/**
 * Reads the dependencies out of the module itself, so that neither depmod nor the host's own module settings
 * have a say. `.modinfo` is a row of `key=value` texts that end with NUL.
 */
export function parseModuleFacts(name: string, file: Uint8Array): ModuleFacts {
  const text = Buffer.from(file.buffer, file.byteOffset, file.byteLength).toString("latin1");
  const depends = /(?:^|\0)depends=([\w,-]*)\0/.exec(text)?.[1];
  if (depends === undefined) {
    throw imageFailure("image_build_failed", `Cannot read kernel module '${name}': no list of dependencies`);
  }
  return {
    name,
    depends: depends.split(",").flatMap((word) => (word === "" ? [] : [word.replaceAll("-", "_")])),
    aliases: [...text.matchAll(/\0alias=([^\0]+)(?=\0)/g)].flatMap((match) => match[1] ?? []),
  };
}

/**
 * The wanted modules and everything they need, each after what it depends on: the order for `insmod`.
 * `load` returns undefined for a module that does not exist as a file (built in, or absent).
 */
export function orderModules<M extends ModuleFacts>(
  wanted: readonly string[],
  load: (name: string) => M | undefined,
): M[] {
  const done = new Map<string, M>();
  const open = new Set<string>();
  const visit = (name: string, neededBy: string): void => {
    if (done.has(name)) return;
    if (open.has(name)) {
      throw imageFailure("image_build_failed", `Cannot order kernel modules: '${name}' depends on itself`);
    }
    const module = load(name);
    if (module === undefined) {
      throw imageFailure(
        "image_build_failed",
        `Cannot find kernel module '${name}' for ${neededBy}: the kernel package has no such file`,
      );
    }
    open.add(name);
    for (const dependency of module.depends) visit(dependency, `'${name}'`);
    open.delete(name);
    done.set(name, module);
  };
  for (const name of wanted) visit(name, "the recipe");
  return [...done.values()];
}

/** The text of `modules.dep` for `modprobe`: every file with all that must be loaded before it, nearest first. */
export function modulesDepText(modules: readonly KernelModule[]): string {
  const byName = new Map(modules.map((module) => [module.name, module]));
  const lookUp = (name: string): KernelModule | undefined => byName.get(name);
  return modules
    .map((module) => {
      const needed = orderModules(module.depends, lookUp).reverse();
      return `${module.path}:${needed.map((each) => ` ${each.path}`).join("")}\n`;
    })
    .join("");
}

/** The text of `modules.alias`, by which the kernel asks for a module (`rtnl-link-veth`). */
export function modulesAliasText(modules: readonly KernelModule[]): string {
  return modules
    .flatMap((module) => module.aliases.map((alias) => `alias ${alias} ${module.name}\n`))
    .join("");
}
