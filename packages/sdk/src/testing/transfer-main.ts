import { createNodeClient, type NodeClientOptions } from "../node.ts";

/** Moves a file in and out in a process of its own, and says how much its memory grew. */
const [options = "{}", mib = "0"] = process.argv.slice(2);
const PART_BYTES = 65_536;

async function main(): Promise<void> {
  const client = createNodeClient(JSON.parse(options) as NodeClientOptions);
  const { fs } = client.vm((await client.vms.create()).id);
  let peak = 0;
  const look = () => {
    peak = Math.max(peak, process.memoryUsage.rss());
  };
  async function* parts(count: number): AsyncGenerator<Uint8Array> {
    for (let at = 0; at < count; at += 1) {
      look();
      yield new Uint8Array(PART_BYTES).fill(at);
    }
  }
  const move = async (bytes: number): Promise<number> => {
    await fs.writeFile("large", parts(bytes / PART_BYTES));
    let read = 0;
    for await (const part of fs.createReadStream("large")) {
      look();
      read += part.length;
    }
    return read;
  };
  // What the runtime loads and compiles for a transfer is not the transfer's.
  await move(8 * 1024 * 1024);
  const before = process.memoryUsage.rss();
  peak = 0;
  const bytes = await move(Number(mib) * 1024 * 1024);
  client.close();
  process.stdout.write(JSON.stringify({ bytes, growthMib: (peak - before) / 1024 / 1024 }));
}

void main();
