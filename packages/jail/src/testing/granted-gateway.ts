/**
 * A sealed gateway under the real gatekeeper: it answers each connection's word with what came of it, as JSON. The
 * listener is descriptor 3, the pair 4. Started by tests alone.
 */
import { closeSync, readFileSync, writeSync } from "node:fs";
import { createServer, Socket } from "node:net";
import { native } from "@capsem/native";
import { openGatekeeper } from "../gatekeeper.ts";
import { GATEWAY_PROFILE } from "../profile-gateway.ts";
import { seal } from "../seal.ts";

const gatekeeper = openGatekeeper(4, native());

const acts: Readonly<Record<string, () => Promise<unknown>>> = {
  service: async () => {
    const socket = new Socket({ fd: await gatekeeper.connectService(), readable: true, writable: true });
    return new Promise((resolve, reject) => {
      socket.once("error", reject);
      socket.once("data", (data) => {
        socket.destroy();
        resolve(data.toString());
      });
      socket.write("hello");
    });
  },
  token: async () => {
    const fd = await gatekeeper.openToken();
    const text = readFileSync(fd, "utf8");
    closeSync(fd);
    return text;
  },
  log: async () => {
    const fd = await gatekeeper.openLog();
    writeSync(fd, "from the gateway\n");
    closeSync(fd);
    return "written";
  },
  "token by path": async () => readFileSync(process.env.TOKEN_PATH ?? ""),
};

async function main(): Promise<void> {
  const server = createServer((socket) => {
    socket.setNoDelay(true);
    socket.on("error", () => socket.destroy());
    socket.on("data", async (word) => {
      const act = acts[word.toString()];
      const said = await Promise.resolve(act?.()).catch((thrown: Error & { code?: string }) => ({
        failed: thrown.code ?? thrown.message,
      }));
      socket.end(JSON.stringify(said));
    });
  });
  await new Promise<void>((done) => server.listen({ fd: 3 }, () => done()));
  await seal(GATEWAY_PROFILE, {
    native: native(),
    arch: process.arch,
    selfPid: process.pid,
    otherPid: process.ppid,
    fileBytesMax: 1024 * 1024,
    allowUnconfined: false,
  });
  await gatekeeper.ready();
}

main().catch((thrown: unknown) => {
  process.stderr.write(`${thrown instanceof Error ? thrown.message : thrown}\n`);
  process.exit(1);
});
