import { expect, test } from "vitest";
import { createSchema } from "./schema.ts";
import type { Database } from "./sqlite.ts";

/** One whose disk is full at the first table, and which rolls back by itself, as SQLite does then. */
const onFullDisk: Database = {
  exec(sql) {
    if (sql.startsWith("CREATE TABLE")) throw new Error("disk_full");
    if (sql === "ROLLBACK") throw new Error("SQL logic error (cannot rollback - no transaction is active)");
  },
  prepare: () => {
    throw new Error("nothing is prepared");
  },
  close: () => undefined,
};

test("a ledger that cannot be made because the disk is full says that, and not what follows from it", () => {
  expect(() => createSchema(onFullDisk, "vm_aaaaaaaaaaaaaaaa", 1)).toThrow("disk_full");
});
