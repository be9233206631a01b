// Puts capsem-mcp together: a bundle that answers the first exchange, one with the tools and the SDK, each with its
// digest in the first line and V8's code cache beside it, and the launcher that runs them.
import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { chmodSync, copyFileSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { Script } from "node:vm";
import { build } from "esbuild";

const self = fileURLToPath(import.meta.url);
const root = resolve(dirname(self), "..");
const WARM_TIMEOUT_MS = 60_000;
const NAMES = ["mcp-server", "mcp-calls"];
/** What a client begins with: the functions it runs are in the caches as well. */
const WARM_LINES = [
  {
    id: 1,
    method: "initialize",
    params: { protocolVersion: "2025-11-25", capabilities: {}, clientInfo: { name: "warm", version: "0" } },
  },
  { method: "notifications/initialized" },
  { id: 2, method: "tools/list" },
  { id: 3, method: "tools/call", params: { name: "capsem_info", arguments: {} } },
];

/** The first bundle finds the second one beside it, and has the list of tools as text: making it takes all schemas. */
export const callsApart = {
  name: "calls apart",
  setup({ onResolve, onLoad }) {
    onResolve({ filter: /\/calls\.ts$/ }, () => ({ path: "./mcp-calls.cjs", external: true }));
    onLoad({ filter: /\/apps\/mcp\/src\/tool-list\.ts$/ }, async ({ path }) => {
      const list = JSON.stringify(await listOf(path));
      return { contents: `export const listTools = () => JSON.parse(${JSON.stringify(list)});` };
    });
  },
};

async function listOf(path) {
  const options = { entryPoints: [path], bundle: true, platform: "node", format: "cjs", write: false };
  const { outputFiles } = await build({ ...options, absWorkingDir: root, logLevel: "warning" });
  const module = { exports: {} };
  new Script(`(function (exports, require, module) {${outputFiles[0].text}\n})`).runInThisContext()(
    module.exports,
    createRequire(path),
    module,
  );
  return module.exports.listTools();
}

/** A tool call needs no WebSocket. The SDK loads it on demand, and esbuild would wrap all that is behind it for that. */
const withoutSockets = {
  name: "without sockets",
  setup({ onResolve, onLoad }) {
    onResolve({ filter: /\/node-socket\.ts$/ }, () => ({ path: "node-socket", namespace: "absent" }));
    onLoad({ filter: /./, namespace: "absent" }, () => ({
      contents: `export function openWebSocket() { throw new Error("Cannot open a WebSocket: it is not in this program"); }`,
    }));
  },
};

/** Completes a fresh `mcp-server.cjs` in `out`, which was built with these options; answers with the second metafile. */
export async function writeLauncher(out, options) {
  const { metafile } = await build({
    ...options,
    entryPoints: ["apps/mcp/src/calls.ts"],
    outfile: join(out, "mcp-calls.cjs"),
    plugins: [withoutSockets],
  });
  for (const name of NAMES) {
    rmSync(join(out, `${name}.cache`), { force: true });
    const code = readFileSync(join(out, `${name}.cjs`));
    replace(join(out, `${name}.cjs`), Buffer.concat([Buffer.from(`//${digestOf(code)}\n`), code]));
  }
  copyFileSync(join(root, "apps", "mcp", "launcher.cjs"), join(out, "mcp.cjs"));
  chmodSync(join(out, "mcp.cjs"), 0o755);
  await warm(out);
  return metafile;
}

function digestOf(code) {
  return createHash("sha256").update(code).digest("hex");
}

function replace(path, data) {
  const fresh = `${path}.${process.pid}.tmp`;
  writeFileSync(fresh, data);
  renameSync(fresh, path);
}

/** The caches are taken by a process of its own, after the bundles have served a client. */
function warm(out) {
  const child = spawn(process.execPath, [self, out], {
    stdio: ["pipe", "pipe", "inherit"],
    timeout: WARM_TIMEOUT_MS,
    env: { CAPSEM_GATEWAY_TOKEN: "warm" },
  });
  child.stdin.on("error", () => undefined);
  child.stdin.write(WARM_LINES.map((line) => `${JSON.stringify({ jsonrpc: "2.0", ...line })}\n`).join(""));
  let answers = "";
  child.stdout.on("data", (data) => {
    answers += data;
    // The end of input would cut off what is not answered.
    if (/"id":3\b[^\n]*\n/.test(answers)) child.stdin.end();
  });
  return new Promise((done, fail) => {
    child.on("error", fail);
    child.on("close", (code) => {
      if (code === 0) done();
      else fail(new Error(`Cannot make the code caches in ${out}: exit code ${code}`));
    });
  });
}

/** As the launcher does it, without a cache. */
function serveOnce(out) {
  const scripts = new Map();
  const modules = new Map();
  const load = (name) => {
    const known = modules.get(name);
    if (known !== undefined) return known.exports;
    const filename = join(out, `${name}.cjs`);
    const source = readFileSync(filename, "utf8");
    const text = `(function (exports, require, module, __filename, __dirname) {${source}\n})`;
    const script = new Script(text, { filename });
    scripts.set(name, { script, head: headOf(source) });
    const loaded = { exports: {} };
    modules.set(name, loaded);
    const require = createRequire(filename);
    const requireIn = (id) => (id === "./mcp-calls.cjs" ? load("mcp-calls") : require(id));
    script.runInThisContext()(loaded.exports, requireIn, loaded, filename, out);
    return loaded.exports;
  };
  process.on("exit", () => {
    for (const name of NAMES) {
      const { script, head } = scripts.get(name);
      replace(join(out, `${name}.cache`), Buffer.concat([Buffer.from(head), script.createCachedData()]));
    }
  });
  process.argv = [process.argv[0], out, "--gateway-url", "http://127.0.0.1:1"];
  load("mcp-server");
}

function headOf(source) {
  return `${source.slice(2, 66)} ${process.version} ${process.platform} ${process.arch}\n`;
}

if (process.argv[1] === self) serveOnce(process.argv[2]);
