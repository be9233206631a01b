import { posix } from "node:path";
import type { Args } from "./args.ts";
import type { GivenEvent } from "./rule-event.ts";
import { shellWord } from "./shell-word.ts";

/** What a call that was refused would have done. */
export interface Typed {
  readonly name: string;
  readonly args: Args;
  /** Where the words alone do not say it: the file of a copy. */
  readonly tried?: GivenEvent | null;
}

/** The options of `rules evaluate` that ask about the same act again; null where nothing is known of it. */
export function evaluateOptions(typed: Typed | null, message: string): string | null {
  if (typed === null) return null;
  const { name, args, tried = null } = typed;
  const [vm, first = "", second = ""] = args.words;
  if (tried !== null) return eventWords(tried, vmOf(typed));
  switch (name) {
    case "run":
      // Its VM is made before anything runs in it.
      return /^Cannot create the VM/.test(message) ? lifecycleWords("create") : commandWords(args, 0);
    case "exec":
    case "shell":
      return commandWords(args, 1, vm);
    case "create":
      return lifecycleWords("create", undefined, args.text("name"));
    case "start":
    case "stop":
    case "restart":
    case "delete":
    case "rename":
    case "persist":
      // Of several it is not said which.
      return lifecycleWords(
        name,
        name === "rename" || name === "persist" || args.words.length === 1 ? vm : undefined,
      );
    case "purge":
      return lifecycleWords("purge");
    case "files mkdir":
      return eventWords(fileEvent({ "file.create.path": first }), vm);
    case "files rm":
      return eventWords(fileEvent({ "file.delete.path": first }), vm);
    case "files rename":
      return eventWords(fileEvent({ "file.delete.path": first, "file.create.path": second }), vm);
    case "settings set":
    case "settings reset":
      return settingWords((vm ?? "").split("=")[0] ?? "");
    case "rules put":
    case "rules delete":
      return vm === undefined ? null : settingWords(vm.includes(".") ? vm : `profiles.rules.${vm}`);
    case "credentials inject":
    case "credentials delete":
      return settingWords(`credentials.${vm}`);
    case "mcp add":
    case "mcp remove":
      return settingWords(`mcp.servers.${vm}`);
    case "mcp default":
      return settingWords("profiles.rules.mcp-default");
    case "mcp approve":
      return first === "" ? null : settingWords(`mcp.pins.${vm}.${first}`);
    default:
      return null;
  }
}

/** A file that goes into a VM, or out of it, as rules see it. */
export function copiedEvent(act: "import" | "export", path: string): GivenEvent {
  return { type: `file.${act}`, fields: { [`file.${act}.path`]: inRoot(path) } };
}

export function fileEvent(paths: Readonly<Record<string, string>>): GivenEvent {
  const fields = Object.fromEntries(Object.entries(paths).map(([key, path]) => [key, inRoot(path)]));
  return { type: "file.event", fields };
}

/** The guest takes a relative path from the workspace. */
function inRoot(path: string): string {
  return posix.resolve("/workspace", path);
}

function commandWords(args: Args, at: number, vm?: string): string | null {
  const line = args.words[at] ?? args.rest?.map(shellWord).join(" ");
  if (line === undefined) return null;
  const [user, cwd] = [args.text("user"), args.text("cwd")];
  return [
    `--command ${shellWord(line)}`,
    ...(user === undefined ? [] : [fieldWord("process.exec.user", user)]),
    ...(cwd === undefined ? [] : [fieldWord("process.exec.cwd", inRoot(cwd))]),
    ...inVm(vm),
  ].join(" ");
}

function lifecycleWords(action: string, vm?: string, name?: string): string {
  const fields = { "vm.lifecycle.action": action, ...(name === undefined ? {} : { "vm.name": name }) };
  return eventWords({ type: "vm.lifecycle", fields }, vm);
}

function settingWords(key: string): string {
  return eventWords({ type: "settings.change", fields: { "settings.key": key, "settings.source": "user" } });
}

function eventWords({ type, fields }: GivenEvent, vm?: string): string {
  const words = Object.entries(fields).map(([key, value]) => fieldWord(key, fieldText(value)));
  return [`--type ${type}`, ...words, ...inVm(vm)].join(" ");
}

function fieldText(value: unknown): string {
  return typeof value === "string" ? value : JSON.stringify(value);
}

function fieldWord(key: string, value: string): string {
  return `--field ${shellWord(`${key}=${value}`)}`;
}

function inVm(vm: string | undefined): string[] {
  return vm === undefined ? [] : [`--vm ${shellWord(vm)}`];
}

/** The VM of a copy stands before the colon of one of its words; a run's is gone. */
function vmOf({ name, args }: Typed): string | undefined {
  if (name === "mcp call") return args.text("vm");
  if (name !== "cp") return undefined;
  return args.words.flatMap((word) => /^([^/:]+):/.exec(word)?.[1] ?? [])[0];
}
