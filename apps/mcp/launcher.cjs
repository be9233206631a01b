#!/usr/bin/env node
// Runs the bundles beside it from V8's code cache: compiling them is what start-up would spend most of its time on. A
// cache that is not of this bundle and this Node is left alone; then the bundle is compiled as any other file.
"use strict";
const { readFileSync } = require("node:fs");
const { join } = require("node:path");
const { Script } = require("node:vm");

/** The second bundle, with the tools, is loaded by the first one when a client asks for them. */
const CALLS = "./mcp-calls.cjs";

const modules = new Map();

function load(name) {
  const known = modules.get(name);
  if (known !== undefined) return known.exports;
  const filename = join(__dirname, `${name}.cjs`);
  const source = readFileSync(filename, "utf8");
  const text = `(function (exports, require, module, __filename, __dirname) {${source}\n})`;
  const script = new Script(text, { filename, cachedData: readCache(name, source) });
  const loaded = { exports: {} };
  modules.set(name, loaded);
  const requireIn = (id) => (id === CALLS ? load("mcp-calls") : require(id));
  script.runInThisContext()(loaded.exports, requireIn, loaded, filename, __dirname);
  return loaded.exports;
}

/** V8 compares the length of the source and its own version; the head says the rest. */
function readCache(name, source) {
  const head = `${source.slice(2, 66)} ${process.version} ${process.platform} ${process.arch}\n`;
  try {
    const cache = readFileSync(join(__dirname, `${name}.cache`));
    return cache.toString("latin1", 0, head.length) === head ? cache.subarray(head.length) : undefined;
  } catch {
    return undefined;
  }
}

load("mcp-server");
