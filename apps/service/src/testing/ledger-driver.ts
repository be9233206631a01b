/**
 * A service as far as the ledger is concerned: `ledger-driver.cjs HOME FIRST LEDGER`. Appends numbered rows without end
 * and says after each flush how many are committed, until it is killed. Started by tests alone.
 */
import { createHash, randomBytes } from "node:crypto";
import { createHome, homeLayout } from "../home/layout.ts";
import { openKeys } from "../ledger/key-files.ts";
import { startLedger } from "../ledger/start-ledger.ts";
import { nodePowers } from "../powers-node.ts";

const [home = "", first = "0", program = ""] = process.argv.slice(2);
const LEDGER = "vm_aaaaaaaaaaaaaaaa";

async function main(): Promise<void> {
  const layout = homeLayout(home);
  const uid = process.getuid?.() ?? -1;
  await createHome(layout, uid);
  const client = startLedger({
    layout,
    powers: { ...nodePowers(program, program), random: (bytes) => randomBytes(bytes) },
    key: openKeys(layout.keys, uid).head,
    vmBytesMax: 1024 ** 3,
    allowUnconfined: () => false,
    log: (level, message, fields = {}) => {
      process.stderr.write(`${JSON.stringify({ level, message, ...fields })}\n`);
    },
  });
  await client.checkWhole(LEDGER);
  for (let n = Number(first); ; ) {
    for (const end = n + 50; n < end; n++) {
      const body = `${n} `.padEnd(100, "x");
      const hash = createHash("sha256").update(body).digest("hex");
      const facts = { hash, kind: "event", original_bytes: 100, is_truncated: false };
      client.append(LEDGER, "event_body_blobs", { ...facts, body });
    }
    await client.flush(LEDGER);
    process.stdout.write(`${n}\n`);
  }
}

void main();
