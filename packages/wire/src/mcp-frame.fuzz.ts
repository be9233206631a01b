/** A seeded fuzzer of MCP frames: what was written comes back at any cut, and noise is refused with a fault. */
import { assert, concat } from "@capsem/base";
import { encodeMcpMessage, McpFrameFault, type McpMessage } from "./mcp-frame.ts";
import { MCP_FRAME_LIMITS } from "./mcp-frame-limits.ts";
import { McpFrameReader } from "./mcp-frame-reader.ts";
import { parseMetaLine } from "./meta-line.ts";
import { randomOf } from "./mux.fuzz.ts";
import { trafficKindOf } from "./traffic-kind.ts";

export function fuzzMcpFrames(seed: number, rounds: number): void {
  const random = randomOf(seed);
  for (let round = 0; round < rounds; round += 1) {
    const sent = Array.from({ length: 1 + random(6) }, (_, at) => ({
      streamId: random(4) === 0 ? 0 : 1 + 2 * at,
      processName: "n".repeat(random(130)),
      text: `"${"ü".repeat(random(random(8) === 0 ? 700_000 : 300))}"`,
    }));
    const bytes = concat(sent.flatMap((message) => encodeMcpMessage(message, message.text)));
    const { messages, fault } = read(bytes, 1 + random(random(2) === 0 ? 50 : 100_000));
    assert(fault === undefined, `a fault in good frames: ${fault?.message}`);
    assert(messages.length === sent.length, `${sent.length} sent, ${messages.length} read`);
    messages.forEach((message, at) => {
      const was = sent[at];
      assert(message.text === was?.text && message.streamId === was.streamId, `message ${at} changed`);
    });
    broken(random, bytes.slice(0, 4_096));
  }
}

function broken(random: (below: number) => number, bytes: Uint8Array): void {
  for (let count = 1 + random(4); count > 0; count -= 1) bytes[random(bytes.length)] = random(256);
  const noise = new Uint8Array(random(200)).map(() => random(256));
  for (const input of [bytes, noise]) {
    read(input, 1 + random(64));
    trafficKindOf(input);
    try {
      parseMetaLine(input);
    } catch (thrown) {
      assert(thrown instanceof Error && thrown.name === "Failure", `meta line: ${thrown}`);
    }
  }
}

function read(bytes: Uint8Array, cut: number): { messages: McpMessage[]; fault: McpFrameFault | undefined } {
  const reader = new McpFrameReader();
  const messages: McpMessage[] = [];
  try {
    for (let at = 0; at < bytes.length; at += cut) {
      reader.push(bytes.subarray(at, at + cut), (message) => messages.push(message));
      assert(reader.heldBytes <= MCP_FRAME_LIMITS.messageBytesMax * 2, "too much is held");
    }
  } catch (thrown) {
    if (!(thrown instanceof McpFrameFault)) throw thrown;
    return { messages, fault: thrown };
  }
  return { messages, fault: undefined };
}
