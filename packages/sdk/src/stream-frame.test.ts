import { expect, test } from "vitest";
import { CapsemError } from "./error.ts";
import { decodeJobOutput } from "./job-output.ts";
import { decodeServerFrame, encodeMessage, encodeStdin } from "./stream-frame.ts";

const bytes = (...parts: (number | string)[]) =>
  Buffer.concat(parts.map((part) => (typeof part === "number" ? Buffer.of(part) : Buffer.from(part))));

test("frames have their type in the first byte", () => {
  expect(Buffer.from(encodeStdin(bytes("hi")))).toEqual(bytes(0, "hi"));
  expect(Buffer.from(encodeMessage({ type: "close_stdin" }))).toEqual(bytes(3, '{"type":"close_stdin"}'));
  expect(decodeServerFrame(bytes(2, "e"))).toEqual({ kind: "output", stream: "stderr", data: bytes("e") });
});

test("empty, unknown, wrong-direction, oversize and broken frames are refused", () => {
  const bad = [
    bytes(),
    bytes(0, "x"),
    bytes(3, "{}"),
    bytes(9),
    bytes(4, "{"),
    bytes(4, "[]"),
    bytes(4, '{"type":"x"}'),
  ];
  for (const frame of [...bad, Buffer.alloc(262_145, 1)])
    expect(() => decodeServerFrame(frame)).toThrow(CapsemError);
});

async function read(...parts: Buffer[]): Promise<string> {
  async function* body() {
    yield* parts;
  }
  let text = "";
  for await (const { stream, data } of decodeJobOutput(body())) text += `${stream[3]}:${Buffer.from(data)} `;
  return text;
}

test("job output is decoded however it is cut", async () => {
  const whole = Buffer.concat([bytes(1, 0, 0, 0, 2, "ab"), bytes(2, 0, 0, 0, 0), bytes(2, 0, 0, 0, 1, "c")]);
  expect(await read(whole)).toBe("o:ab e:c ");
  expect(await read(...[...whole].map((byte) => Buffer.of(byte)))).toBe("o:a o:b e:c ");
});

test("job output that is cut off or has another type is refused", async () => {
  await expect(read(bytes(1, 0, 0, 0, 2, "a"))).rejects.toThrow(/inside a chunk/);
  await expect(read(bytes(1, 0))).rejects.toThrow(/inside a chunk/);
  await expect(read(bytes(3, 0, 0, 0, 1, "a"))).rejects.toThrow(/type 3/);
});
