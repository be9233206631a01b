// What each cached program does once at the end of a build, so that its code cache has what a start and the first
// requests need. No VM is started, nothing leaves the machine, and every home is a folder that goes away again.
import { closeSync, existsSync, mkdirSync, mkdtempSync, openSync, rmSync } from "node:fs";
import { request } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { startWarm } from "./code-cache.mjs";

const ANSWER_POLL_MS = 20;

/** A folder for one run. */
async function inFolder(use) {
  const folder = mkdtempSync(join(tmpdir(), "capsem-warm-"));
  try {
    return await use(folder);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Until it answers or ends, whatever it answers. */
async function untilAnswered({ ended }, options) {
  const state = { isOver: false };
  const over = () => {
    state.isOver = true;
  };
  ended.then(over, over);
  while (!state.isOver && !(await isAnswered(options())))
    await new Promise((done) => setTimeout(done, ANSWER_POLL_MS));
}

function isAnswered(options) {
  if (options === null) return false;
  return new Promise((done) => {
    const asked = request({ ...options, agent: false }, (answer) => {
      answer.resume();
      answer.on("end", () => done(true));
    });
    asked.on("error", () => done(false));
    asked.end();
  });
}

/** A service that answers and ends by its signal; `use` may ask it for a VM, which it cannot have. */
async function runService(out, home, programs, use) {
  const service = startWarm(out, "service", {
    programs,
    args: ["--home", home],
    env: { CAPSEM_CACHE: home, CAPSEM_POOL_SIZE: "0" },
    // There is no image program beside this path: it would build an image.
    argv0: join(home, "service.cjs"),
  });
  await untilAnswered(service, () => ({ socketPath: join(home, "run", "service.sock"), path: "/health" }));
  try {
    await use();
  } finally {
    service.child.kill("SIGTERM");
    await service.ended;
  }
}

function runCli(out, home, programs) {
  const env = { CAPSEM_HOME: home, CAPSEM_NO_AUTOSTART: "1" };
  const cli = startWarm(out, "cli", { programs, args: ["run", "true"], env });
  cli.child.stdin.end();
  return cli.ended;
}

/** Both are clients of each other, where both are built. */
export function warmService(out) {
  return inFolder((home) =>
    runService(out, home, ["service-main"], async () => {
      if (existsSync(join(out, "cli-main.cjs"))) await runCli(out, home, []);
    }),
  );
}

export function warmCli(out) {
  return inFolder(async (home) => {
    const run = () => runCli(out, home, ["cli-main"]);
    if (existsSync(join(out, "service-main.cjs"))) await runService(out, home, [], run);
    else await run();
  });
}

/** Not behind the gatekeeper: what is different there is little. */
export function warmGateway(out) {
  return inFolder(async (home) => {
    await startWarm(out, "gateway", { programs: [], args: ["token", "ensure", "--home", home] }).ended;
    const args = ["serve", "--home", home, "--port", "0", "--allow-unconfined"];
    const gateway = startWarm(out, "gateway", { programs: ["gateway-main"], args });
    await untilAnswered(gateway, () => {
      const port = /"port":([0-9]+)/.exec(gateway.said())?.[1];
      return port === undefined ? null : { port: Number(port), path: "/health" };
    });
    gateway.child.kill("SIGTERM");
    await gateway.ended;
  });
}

/** An owner whose hypervisor ends at once: after the plan, the launcher's words and the seal's preparation. */
export function warmOwner(out) {
  return inFolder(async (folder) => {
    mkdirSync(join(folder, "jobs"));
    const empty = openSync("/dev/null", "r+");
    const owner = startWarm(out, "owner", {
      programs: ["owner-main"],
      stdio: ["pipe", empty, empty, empty, empty, empty, empty],
    });
    closeSync(empty);
    const plan = {
      kind: "cold",
      vm_id: "vm_warm",
      cpus: 1,
      memory_mib: 256,
      accelerator: "tcg",
      qemu_binary: "/bin/false",
      launcher: join(out, "capsem-launch"),
      uid: null,
      folder,
      descriptors: { rpc: 3, traffic: 4, kernel: 5, initrd: 6, root: 7, agent: 8, disk: 9 },
      pool: true,
      disk_capacity_bytes: 1024 ** 3,
      allow_unconfined: true,
    };
    const rpc = owner.child.stdio[3].on("error", () => undefined);
    // Nobody answers its last call.
    owner.child.stderr.on("data", () => {
      if (owner.said().includes('"VM ended"')) rpc.destroy();
    });
    rpc.resume();
    owner.child.stdin.write(`${JSON.stringify(plan)}\n`);
    const { text } = await owner.ended;
    if (!text.includes('"hypervisor_exit"')) throw new Error(`Cannot warm the owner: ${text}`);
  });
}

/** A ledger that starts its threads, says that it is ready, and ends with its channels. */
export function warmLedger(out) {
  return inFolder(async (folder) => {
    const ledger = startWarm(out, "ledger", { programs: ["ledger-main"], stdio: ["pipe", "pipe"] });
    const plan = {
      folder,
      channels: [
        { role: "producer", producer: "warm", fd: 3 },
        { role: "reader", producer: "warm", fd: 4 },
      ],
      vm_bytes_max: 1024 ** 3,
      allow_unconfined: true,
    };
    const channels = ledger.child.stdio.slice(3);
    for (const channel of channels) channel.on("error", () => undefined).resume();
    // Nobody answers that it is ready: what it says first is as much as it says.
    ledger.child.stderr.on("data", () => {
      if (/"ledger (is not )?confined"/.test(ledger.said())) for (const channel of channels) channel.end();
    });
    ledger.child.stdin.end(`${JSON.stringify(plan)}\n`);
    const { text } = await ledger.ended;
    if (!text.includes('"ledger ended"')) throw new Error(`Cannot warm the ledger: ${text}`);
  });
}

/** As the service starts them (`WORKER_NODE_FLAGS` of @capsem/jail): V8 refuses a cache that was made with others. */
const WORKER_FLAGS = [
  "--single-threaded-gc",
  "--max-semi-space-size=4",
  "--initial-old-space-size=12",
  "--heap-growing-percent=100",
  "--v8-pool-size=1",
];

/** A worker that is sealed and says that it is ready; nobody answers, grants it anything, or has work for it. */
function warmWorker(out, kind) {
  const worker = startWarm(out, kind, {
    programs: [`${kind}-main`],
    flags: WORKER_FLAGS,
    stdio: ["pipe", "pipe"],
  });
  const plan = {
    ...{ kind, scope: "host", vm: null, allow_unconfined: true },
    descriptors: { service: 3, grants: 4 },
  };
  const channels = worker.child.stdio.slice(3);
  for (const channel of channels) channel.on("error", () => undefined).resume();
  worker.child.stderr.on("data", () => {
    if (/"\w+ (is not )?confined"/.test(worker.said())) for (const channel of channels) channel.end();
  });
  worker.child.stdin.end(`${JSON.stringify(plan)}\n`);
  return worker.ended.then(({ text }) => {
    // Whether it calls it an end that nobody took its word is its own matter.
    if (!/"\w+ (is not )?confined"/.test(text)) throw new Error(`Cannot warm the ${kind}: ${text}`);
  });
}

export function warmBuiltin(out) {
  return warmWorker(out, "builtin");
}

export function warmAggregator(out) {
  return warmWorker(out, "aggregator");
}

export function warmEgress(out) {
  return warmWorker(out, "egress");
}

export function warmProxy(out) {
  return warmWorker(out, "proxy");
}

/** It looks for an image and finds no recipe. */
export function warmImage(out) {
  return inFolder(async (folder) => {
    const files = ["--agent", join(out, "guest.cjs"), "--helper", join(out, "capsem-helper")];
    const args = ["build", "--cache", folder, "--recipe", join(folder, "none"), ...files];
    const image = startWarm(out, "image", { programs: ["image-main"], args });
    await image.ended;
  });
}

/** What a client begins with. */
const MCP_LINES = [
  {
    id: 1,
    method: "initialize",
    params: { protocolVersion: "2025-11-25", capabilities: {}, clientInfo: { name: "warm", version: "0" } },
  },
  { method: "notifications/initialized" },
  { id: 2, method: "tools/list" },
  { id: 3, method: "tools/call", params: { name: "capsem_info", arguments: {} } },
];

export async function warmMcp(out) {
  const mcp = startWarm(out, "mcp", {
    programs: ["mcp-server", "mcp-calls"],
    args: ["--gateway-url", "http://127.0.0.1:1"],
    env: { CAPSEM_GATEWAY_TOKEN: "warm" },
  });
  mcp.child.stdin.write(MCP_LINES.map((line) => `${JSON.stringify({ jsonrpc: "2.0", ...line })}\n`).join(""));
  // The end of input would cut off what is not answered.
  mcp.child.stdout.on("data", () => {
    if (/"id":3\b[^\n]*\n/.test(mcp.said())) mcp.child.stdin.end();
  });
  await mcp.ended;
}
