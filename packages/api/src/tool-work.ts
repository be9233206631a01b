import * as z from "zod";
import { FILE_ROUTES } from "./file-routes.ts";
import { JOB_LIMITS } from "./job-limits.ts";
import { path } from "./route.ts";
import { logWindow } from "./service-schema.ts";
import { logArguments } from "./tool-diagnostics.ts";
import { TOOL_LIMITS } from "./tool-limits.ts";
import { DESTROYS, given, MAKES, READS, type Tool, tool, vmArgument } from "./tool-row.ts";
import { cpusArgument, envArgument, memoryArgument } from "./tool-vms.ts";
import { VM_ROUTES } from "./vm-routes.ts";
import { WORK_ROUTES } from "./work-routes.ts";

const ENDS =
  "Answers when it ends: exit_code (not 0 is a result, not an error), signal, timed_out, out_of_memory, and stdout and stderr as {encoding, data, truncated} with the first 1 MiB of each";
const LIMIT =
  "Without timeout_secs the command has 5 s less than this server's request limit (25 s unless set), then it is killed and what it wrote comes back with timed_out true: name timeout_secs for longer work";

const command = z
  .string()
  .min(1)
  .refine((line) => Buffer.byteLength(line) <= JOB_LIMITS.commandBytesMax, {
    message: `over ${JOB_LIMITS.commandBytesMax} bytes; write a script with capsem_write_file and run that`,
  })
  .describe("A line for bash -c, run as user in /workspace");
const timeoutSecs = z
  .number()
  .positive()
  .max(TOOL_LIMITS.timeoutSecsMax)
  .optional()
  .describe("Seconds after which the command and all its processes are killed (timed_out is then true)");
const pathArgument = path.describe("Relative to /workspace, or absolute in the VM");
const encoding = z.enum(["utf8", "base64"]).optional();

const writeInput = z
  .strictObject({
    vm_id: vmArgument,
    path: pathArgument,
    content: z
      .string()
      .max(TOOL_LIMITS.contentCharsMax)
      .describe("The whole new content, up to 16 MiB of text"),
    encoding: encoding.describe("What content is: utf8 (default) or base64 for bytes"),
  })
  .superRefine(({ content, encoding: how }, context) => {
    if (how === "base64" && !isBase64(content))
      context.addIssue({ code: "custom", path: ["content"], message: "not base64" });
  });

/** One window of a file, with the true size. */
export const fileWindow = z.strictObject({
  encoding: z.enum(["utf8", "base64"]),
  data: z.string(),
  /** Where the window begins and how many bytes it has; `size` is the whole file's. */
  offset: z.number().int(),
  bytes: z.number().int(),
  size: z.number().int(),
  /** There is more after it: read on from offset + bytes. */
  truncated: z.boolean(),
});
export type FileWindowResult = z.infer<typeof fileWindow>;

export const WORK_TOOLS = {
  capsem_run: tool({
    route: "run",
    title: "Run one command in a fresh VM",
    description: `Runs one command in a new VM that is destroyed at its end, with all files. ${ENDS}. ${LIMIT}. Cancelling destroys the VM.`,
    input: z.strictObject({
      command,
      timeout_secs: timeoutSecs,
      cpus: cpusArgument,
      memory: memoryArgument,
      env: envArgument.describe("Environment of the command; values are never shown again"),
    }),
    output: VM_ROUTES.run.result,
    annotations: { ...MAKES, openWorldHint: true },
    request: ({ memory, env, ...rest }) => ({ body: given({ ...rest, memory_gib: memory, vm_env: env }) }),
  }),
  capsem_exec: tool({
    route: "exec",
    title: "Run a command in a VM",
    description: `Runs a command in a running VM; files and background state of the VM stay for the next call. ${ENDS}. ${LIMIT}. Cancelling kills the command and leaves the VM running.`,
    input: z.strictObject({ vm_id: vmArgument, command, timeout_secs: timeoutSecs }),
    output: WORK_ROUTES.exec.result,
    annotations: { ...MAKES, destructiveHint: true, openWorldHint: true },
    request: ({ vm_id: id, ...body }) => ({ params: { id }, body: given(body) }),
  }),
  capsem_list_files: tool({
    route: "fileList",
    title: "List files",
    description: `Lists a directory of a VM: entries with name, type, size in bytes, mode and mtime_ms; total counts all, more says that some are left out (at most ${TOOL_LIMITS.listEntries} entries or 12 KB come). For large trees use capsem_exec with find.`,
    input: z.strictObject({
      vm_id: vmArgument,
      path: pathArgument.optional().describe("Directory, relative to /workspace (the default) or absolute"),
      depth: z.number().int().min(1).max(16).optional().describe("Levels below it, default 1"),
    }),
    output: FILE_ROUTES.fileList.result,
    annotations: READS,
    request: ({ vm_id: id, ...query }) => ({
      params: { id },
      query: { ...given(query), limit: TOOL_LIMITS.listEntries },
    }),
  }),
  capsem_read_file: tool({
    route: "fileRead",
    title: "Read a file",
    description: `Reads one window of a file: data with its encoding (utf8 when the bytes are text, else base64), offset, bytes, the file's true size, and truncated when more follows. Read on with offset = offset + bytes.`,
    input: z.strictObject({
      vm_id: vmArgument,
      path: pathArgument,
      encoding: encoding.describe("utf8: fail unless it is text; base64: always bytes; absent: what fits"),
      offset: z.number().int().nonnegative().optional().describe("First byte, default 0"),
      max_bytes: z
        .number()
        .int()
        .min(1)
        .max(TOOL_LIMITS.windowBytesMax)
        .optional()
        .describe(`Bytes at most, default ${TOOL_LIMITS.windowBytes}, up to 1 MiB`),
    }),
    output: fileWindow,
    annotations: READS,
    request: ({ vm_id: id, path: file, offset, max_bytes: length = TOOL_LIMITS.windowBytes }) => ({
      params: { id },
      query: given({ path: file, offset, length }),
    }),
  }),
  capsem_write_file: tool({
    route: "fileWrite",
    title: "Write a file",
    description:
      "Writes a whole file in a VM, replacing what was there and making missing parent directories. Answers with the number of bytes written.",
    input: writeInput,
    output: FILE_ROUTES.fileWrite.result,
    annotations: DESTROYS,
    request: ({ vm_id: id, path: file, content, encoding: how }) => ({
      params: { id },
      query: { path: file },
      body: new Uint8Array(Buffer.from(content, how ?? "utf8")),
    }),
  }),
  capsem_vm_logs: tool({
    route: "logs",
    title: "Read a VM's logs",
    description:
      "The last log lines of a VM, for one that fails or does not start: its console, then the agent in it (guest), then the process that runs it (owner), each line after its source, oldest first. truncated says that more exist.",
    input: z.strictObject({ vm_id: vmArgument, ...logArguments }),
    output: logWindow,
    annotations: READS,
    request: ({ vm_id: id, max_bytes = TOOL_LIMITS.windowBytes, ...query }) => ({
      params: { id },
      query: { ...given(query), max_bytes },
    }),
  }),
} as const satisfies Record<string, Tool>;

function isBase64(text: string): boolean {
  return text.length % 4 === 0 && /^[A-Za-z0-9+/]*={0,2}$/.test(text);
}
