import { existsSync, readFileSync } from "node:fs";
import * as z from "zod";
import { until } from "../support/rig.ts";

const event = z.union([
  z.object({ from: z.enum(["client", "server"]), line: z.string() }),
  z.object({ from: z.enum(["client", "server"]), unfinished: z.string() }),
  z.object({ asked: z.string() }),
  z.object({ end: z.object({ code: z.number().nullable(), signal: z.string().nullable() }) }),
]);

const message = z.looseObject({
  jsonrpc: z.literal("2.0"),
  id: z.union([z.string(), z.number()]).optional(),
  method: z.string().optional(),
  params: z.looseObject({ _meta: z.looseObject({}).optional() }).optional(),
  result: z.looseObject({}).optional(),
});
export type Message = z.output<typeof message>;

/** One connection as it was on the wire. */
export interface WireLog {
  readonly sent: readonly Message[];
  readonly answered: readonly Message[];
  /** What the client said of itself first, in the handshake or with its first request. */
  readonly client: string | null;
  /** Methods of the client's requests and notifications, in order. */
  readonly methods: readonly string[];
  /** What the server was last asked to end by: "end of input" or a signal. */
  readonly askedToEnd: string | null;
  readonly end: { readonly code: number | null; readonly signal: string | null };
}

/** Waits until the server of a tapped connection has ended. Every line of it must have been a JSON-RPC message. */
export async function readWireLog(path: string): Promise<WireLog> {
  await until(
    `the server behind ${path} ended`,
    10_000,
    () => existsSync(path) && /^\{"end":/m.test(text(path)),
  );
  const events = text(path)
    .trimEnd()
    .split("\n")
    .map((line) => event.parse(JSON.parse(line)));
  const linesOf = (side: "client" | "server") =>
    events.flatMap((one) => {
      if (!("from" in one) || one.from !== side) return [];
      if ("unfinished" in one) throw new Error(`the ${side} sent what is no line: ${one.unfinished}`);
      return message.parse(JSON.parse(one.line));
    });
  const sent = linesOf("client");
  return {
    sent,
    answered: linesOf("server"),
    client: clientOf(sent[0]),
    methods: sent.flatMap(({ method }) => method ?? []),
    askedToEnd: events.findLast((one) => "asked" in one)?.asked ?? null,
    end: events.findLast((one) => "end" in one)?.end ?? { code: null, signal: null },
  };
}

const clientInfo = z.looseObject({ name: z.string(), version: z.string() });

function clientOf(first: Message | undefined): string | null {
  const said = first?.params?.clientInfo ?? first?.params?._meta?.["io.modelcontextprotocol/clientInfo"];
  const parsed = clientInfo.safeParse(said);
  return parsed.success ? `${parsed.data.name} ${parsed.data.version}` : null;
}

const text = (path: string): string => readFileSync(path, "utf8");

const VERSION_KEY = "io.modelcontextprotocol/protocolVersion";

/** The revision that a tools/… request of the client went by: its own word, or the one that the handshake agreed on. */
export function revisionOf(log: WireLog, method: string): string | null {
  const request = log.sent.find((one) => one.method === method);
  const own = request?.params?._meta?.[VERSION_KEY];
  if (typeof own === "string") return own;
  const opened = log.sent.find((one) => one.method === "initialize");
  const agreed = log.answered.find((one) => one.id === opened?.id)?.result?.protocolVersion;
  return opened !== undefined && typeof agreed === "string" ? agreed : null;
}
