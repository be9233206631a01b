import { randomBytes } from "node:crypto";
import { duplexPair } from "node:stream";
import { createGuestDataLane, type Mux, muxTransport, PORTS, pump } from "@capsem/wire";
import { expect, onTestFinished, test, vi } from "vitest";
import { serveLane } from "./traffic-lane.ts";

const DAY_MS = 86_400_000;

function laneRig() {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
  onTestFinished(() => void vi.useRealTimers());
  const [host, guest] = duplexPair();
  const marker = randomBytes(32);
  const clients: number[] = [];
  const ends: string[] = [];
  void serveLane({
    ...{ duplex: host, start: { marker: marker.toString("hex"), generation: 3 }, log: () => undefined },
    onClient: ({ port }) => void clients.push(port),
  }).then((why) => ends.push(why));
  /** The guest's relay opens its port, which it does for its first client. */
  const open = () =>
    new Promise<Mux>((resolve, reject) => {
      const lane = createGuestDataLane({
        transport: muxTransport(guest),
        onOpen: (stream) => stream.reset("refused"),
        onGeneration: resolve,
        onFailure: reject,
      });
      pump(guest, lane);
      lane.expect(marker, 3);
    });
  return { guest, clients, ends, open };
}

test.each([
  ["that was never used", ""],
  ["in which an earlier guest left half of its words", "half a frame"],
])("a lane %s waits for its guest as long as that takes, and serves it then", async (_, left) => {
  const { guest, clients, ends, open } = laneRig();
  if (left !== "") guest.write(left);
  await vi.advanceTimersByTimeAsync(DAY_MS);
  expect(ends).toEqual([]);
  const mux = await open();
  mux.open(PORTS.traffic.number, "");
  await expect.poll(() => clients).toEqual([PORTS.traffic.number]);
});

test("a lane whose far end is gone is over, and says so", async () => {
  const { guest, ends } = laneRig();
  guest.end();
  await vi.waitFor(() => expect(ends).toEqual([expect.stringContaining("the lane: ")]));
});
