import { parentPort } from "node:worker_threads";
import { Failure, messageOf } from "@capsem/base";
import { PAGE_WORK, type PageJobs, type PageVerb } from "./page-job.ts";

export type PageRequest = {
  [V in PageVerb]: { readonly verb: V; readonly job: PageJobs[V]["job"] };
}[PageVerb];
export type PageAnswer =
  | { readonly value: PageJobs[PageVerb]["result"] }
  | { readonly failure: { readonly kind: string; readonly message: string } };

/** A thread of pages: one job at a time, no state between two. What it is given and what it answers is copied. */
export function runPageThread(): void {
  const port = parentPort;
  port?.on("message", (request: PageRequest) => port.postMessage(answerOf(request)));
}

function answerOf(request: PageRequest): PageAnswer {
  try {
    return { value: work(request) };
  } catch (thrown) {
    if (thrown instanceof Failure) return { failure: { kind: thrown.kind, message: thrown.message } };
    // Of a library that a page was too much for: deep in itself, or out of bounds.
    return { failure: { kind: "upstream_failed", message: `Cannot convert the page: ${messageOf(thrown)}` } };
  }
}

function work(request: PageRequest): PageJobs[PageVerb]["result"] {
  switch (request.verb) {
    case "convert":
      return PAGE_WORK.convert(request.job);
    case "search":
      return PAGE_WORK.search(request.job);
    case "unzstd":
      return PAGE_WORK.unzstd(request.job);
  }
}
