import { cp, mkdir } from "node:fs/promises";
import { basename, join } from "node:path";
import { Failure } from "@capsem/base";
import * as z from "zod";
import { isMissing, readJsonFile, writeFileAtomic } from "./atomic-file.ts";
import type { HomeLayout } from "./layout.ts";

export const SCHEMA_VERSION = 1;

/** Brings a home from version `n` to `n + 1`; the key is `n`. */
export type Migrations = Readonly<Record<number, (layout: HomeLayout) => Promise<void>>>;

const schemaFile = z.looseObject({ version: z.number().int().positive() });

/**
 * A home of an older version is migrated step by step after a copy of its small files; a newer one is refused
 * and nothing is touched. Version 1 has no predecessor, so `migrations` is empty outside of tests.
 */
export async function checkSchemaVersion(
  layout: HomeLayout,
  migrations: Migrations = {},
  current: number = SCHEMA_VERSION,
): Promise<void> {
  const found = await readJsonFile(layout.schema);
  if (found === null) {
    await writeVersion(layout, current);
    return;
  }
  const parsed = schemaFile.safeParse(found);
  if (!parsed.success) {
    throw new Failure("schema_unreadable", `Cannot open "${layout.home}": schema.json has no version`);
  }
  const { version } = parsed.data;
  if (version > current) {
    throw new Failure(
      "schema_newer",
      `Cannot open "${layout.home}": its version ${version} is newer than ${current}, which this program knows`,
    );
  }
  if (version === current) return;
  await copyState(layout, version);
  for (let from = version; from < current; from++) {
    const migrate = migrations[from];
    if (migrate === undefined) {
      throw new Failure("schema_older", `Cannot migrate "${layout.home}": no step from version ${from}`);
    }
    await migrate(layout);
    await writeVersion(layout, from + 1);
  }
}

function writeVersion(layout: HomeLayout, version: number): Promise<void> {
  return writeFileAtomic(layout.schema, `${JSON.stringify({ version })}\n`);
}

/** Registry and settings only: disks, logs and sockets are not changed by migrations. */
async function copyState(layout: HomeLayout, version: number): Promise<void> {
  const target = join(layout.backups, `schema-${version}`);
  await mkdir(target, { recursive: true, mode: 0o700 });
  for (const source of [layout.schema, layout.settings]) {
    await cp(source, join(target, basename(source))).catch((thrown: unknown) => {
      if (!isMissing(thrown)) throw thrown;
    });
  }
  const isState = (path: string) => !/\.(qcow2|sock)$/.test(path) && !/\/(jobs|logs)(\/|$)/.test(path);
  await cp(layout.vms, join(target, "vms"), { recursive: true, filter: isState }).catch((thrown: unknown) => {
    if (!isMissing(thrown)) throw thrown;
  });
}
