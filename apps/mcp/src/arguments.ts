import type { Tool, ToolRequest } from "@capsem/api";
import type * as z from "zod";
import { FAULTS_MAX, NAME_CHARS_MAX } from "./limits.ts";
import { ToolFailure } from "./tool-failure.ts";

type Issue = z.core.$ZodIssue;

/** The request of a call, or a failure that names each wrong argument and repeats no value. */
export function requestOf(name: string, tool: Tool, args: unknown): ToolRequest {
  const parsed = tool.input.safeParse(args ?? {});
  if (parsed.success) return tool.request(parsed.data);
  const faults = parsed.error.issues.flatMap(faultsOf);
  const more = faults.length > FAULTS_MAX ? `; and ${faults.length - FAULTS_MAX} more` : "";
  throw new ToolFailure({
    kind: "invalid_input",
    reason: `Cannot use ${name}: ${faults.slice(0, FAULTS_MAX).join("; ")}${more}`,
    retryable: false,
  });
}

function faultsOf(issue: Issue): string[] {
  const path = issue.path.map(nameOf).join(".");
  if (issue.code === "unrecognized_keys")
    return issue.keys.map(
      (key) => `${[...issue.path, key].map(nameOf).join(".")}: there is no such argument`,
    );
  return [`${path === "" ? "arguments" : path}: ${textOf(issue)}`];
}

function textOf(issue: Issue): string {
  if (issue.code === "invalid_type" && issue.message.endsWith("received undefined")) return "it is missing";
  if (issue.code === "invalid_union") return issue.errors.flat()[0]?.message ?? issue.message;
  return issue.message;
}

function nameOf(part: PropertyKey): string {
  const name = String(part);
  return name.length <= NAME_CHARS_MAX ? name : `${name.slice(0, NAME_CHARS_MAX)}…`;
}
