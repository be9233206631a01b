import { ROUTES } from "@capsem/api";
import { expect, test } from "vitest";
import { createClient } from "./client.ts";
import { asyncDispose } from "./dispose.ts";
import type { Transport } from "./transport.ts";

/** Why a method has no route of its own. */
const BESIDE_THE_TABLE: Readonly<Record<string, string>> = {
  create: "vms.create, with a handle for the answer",
  hold: "vms.create with hold=true",
  vm: "makes a handle and sends nothing",
  operation: "any route by its name",
  close: "the connections' end",
  "vm.attach": "the stream route with another first message",
  "vm.files.readStream": "vm.files.read without collecting",
};
/** The shape of node:fs/promises over vm.files. */
const OVER_FILES = /^vm\.fs\./;

const nothing = async () => {
  throw new Error("nothing is sent");
};
const transport: Transport = { request: nothing, socket: nothing, close: () => undefined };

/** Names of all functions, as the route table writes them. */
function methodsOf(value: object, prefix: string): string[] {
  return Object.entries(value).flatMap(([key, member]: [string, unknown]) => {
    const name = `${prefix}${key}`;
    if (typeof member === "function") return [name];
    return typeof member === "object" && member !== null ? methodsOf(member, `${name}.`) : [];
  });
}

const client = createClient(transport);
const methods = [...methodsOf(client, ""), ...methodsOf(client.vm("vm_aaaaaaaaaaaaaaaa"), "vm.")];

test("each route's method is on the client", () => {
  const missing = Object.values(ROUTES).filter(({ sdk }) => !methods.includes(sdk));
  expect(missing).toEqual([]);
});

test("each method of the client is of a route, or says why not", () => {
  const named: ReadonlySet<string> = new Set(Object.values(ROUTES).map(({ sdk }) => sdk));
  const others = methods.filter((name) => !named.has(name) && !OVER_FILES.test(name));
  expect(others.sort()).toEqual(Object.keys(BESIDE_THE_TABLE).sort());
});

test("a client ends with the block that uses it", async () => {
  let closed = 0;
  const used = createClient({
    ...transport,
    close: () => {
      closed += 1;
    },
  });
  await used[asyncDispose]();
  expect(closed).toBe(1);
});
