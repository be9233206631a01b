import { expect, test } from "vitest";
import { ledgerWords } from "./ledger-launch.ts";

const PROGRAM = {
  nodeBinary: "/opt/node",
  bundle: "/opt/ledger.cjs",
  grants: { read: ["/opt/lib", "/opt/ledger.cjs"], exec: ["/opt/node"], write: ["/dev/null"] },
  servicePid: 42,
  isRoot: false,
};
const PLAN = {
  folder: "/home/ledgers",
  channels: [
    { role: "producer" as const, producer: "service", fd: 3 },
    { role: "reader" as const, producer: "service", fd: 4 },
  ],
  vm_bytes_max: 1,
  allow_unconfined: false,
};

function optionsOf(program: Partial<typeof PROGRAM> = {}, plan: Partial<typeof PLAN> = {}) {
  const { args } = ledgerWords({ ...PROGRAM, ...program }, { ...PLAN, ...plan });
  const end = args.indexOf("--");
  return {
    command: args.slice(end + 1),
    has: (option: string) => args.slice(0, end).includes(option),
    values: (option: string) =>
      args.slice(0, end).flatMap((word, index) => (word === option ? [args[index + 1] ?? ""] : [])),
  };
}

test("the ledger dies with the service, has its channels, and writes in its one folder", () => {
  const { command, values } = optionsOf();
  expect(command).toEqual(["/opt/node", "/opt/ledger.cjs"]);
  expect(values("--parent")).toEqual(["42"]);
  expect(values("--keep-fd")).toEqual(["3", "4"]);
  expect(values("--write")).toEqual(["/dev/null"]);
  expect(values("--tree")).toEqual(["/home/ledgers"]);
  expect(values("--landlock")).toEqual(["require"]);
  expect(values("--net-namespace")).toEqual(["try"]);
  expect(values("--env")).toContain("UV_USE_IO_URING=0");
});

test("it keeps no right of root's, and a machine that may go unconfined still tries", () => {
  expect(optionsOf().has("--as-root-ok")).toBe(false);
  expect(optionsOf({ isRoot: true }).has("--as-root-ok")).toBe(true);
  expect(optionsOf({ isRoot: true }).values("--capability")).toEqual([]);
  expect(optionsOf({}, { allow_unconfined: true }).values("--landlock")).toEqual(["try"]);
});
