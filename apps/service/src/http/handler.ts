import type { ROUTES, RouteName } from "@capsem/api";
import type * as z from "zod";
import type { ActContext } from "../act.ts";
import type { FrameSocket } from "../job/frame-socket.ts";

type Parsed<N extends RouteName, K extends "params" | "query" | "body"> = (typeof ROUTES)[N] extends {
  readonly [P in K]: infer S extends z.ZodType;
}
  ? z.output<S>
  : undefined;

/** One request after parsing: nothing in it can be of the wrong shape. */
export interface RouteCall<N extends RouteName> {
  readonly params: Parsed<N, "params">;
  readonly query: Parsed<N, "query">;
  readonly body: Parsed<N, "body">;
  /** The body of a route that takes bytes; empty otherwise. */
  readonly bytes: BodyBytes;
  readonly context: ActContext;
  /** The accepted WebSocket of a route that is one. Opening it answers the client; before, errors are HTTP. */
  readonly openSocket: () => Promise<FrameSocket>;
}

/** At most one pass. Throws Failure("too_large") at the limit it is given. */
export interface BodyBytes {
  /** As the client declared, which HTTP holds it to; null: it did not say. */
  readonly declaredBytes: number | null;
  chunks(bytesMax: number): AsyncIterable<Uint8Array>;
  /** The first bytes, up to `wanted`, or all when there are fewer. `chunks` then gives them too. */
  peek(wanted: number, bytesMax: number, signal: AbortSignal): Promise<Uint8Array>;
}

type Result<N extends RouteName> = (typeof ROUTES)[N] extends { readonly result: infer S extends z.ZodType }
  ? z.input<S>
  : never;

export type Answer<N extends RouteName> =
  | { readonly kind: "json"; readonly value: Result<N> }
  | BytesAnswer
  | LinesAnswer
  | { readonly kind: "socket" };

/** Headers go out first; then `pump` writes, at the client's pace, and cleans up on every path. */
export interface BytesAnswer {
  readonly kind: "bytes";
  readonly headers: Readonly<Record<string, string>>;
  pump(write: (chunk: Uint8Array) => Promise<void>): Promise<void>;
}

/** JSON lines over an answer that stays open. */
export interface LinesAnswer {
  readonly kind: "lines";
  pump(write: (line: unknown) => Promise<void>): Promise<void>;
}

export type Handlers = { readonly [N in RouteName]: (call: RouteCall<N>) => Promise<Answer<N>> };

export function json<T>(value: T): { kind: "json"; value: T } {
  return { kind: "json", value };
}
