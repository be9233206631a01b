#!/usr/bin/env node
// Runs the program beside it from V8's code cache: compiling it is what start-up would spend much of its time on. A
// cache that is not of this program and this Node, or is damaged, is left alone: then it is compiled like any file.
"use strict";
const { readFileSync } = require("node:fs");
const { join } = require("node:path");
const { Script } = require("node:vm");

const HEAD_BYTES = 128;
const modules = new Map();

/** The first line of a program is its digest, the rest is one function; tools/code-cache.mjs writes it and its cache. */
function load(name) {
  const known = modules.get(name);
  if (known !== undefined) return known.exports;
  const filename = join(__dirname, `${name}.cjs`);
  // Written in plain ASCII, which is the quickest to take over.
  const source = readFileSync(filename, "latin1");
  const script = new Script(source, { filename, cachedData: readCache(name, source.slice(2, 66)) });
  const loaded = { exports: {} };
  modules.set(name, loaded);
  // A program finds what is built apart from it as a file beside it.
  const requireIn = (id) => (id.startsWith("./") ? load(id.slice(2, -".cjs".length)) : require(id));
  script.runInThisContext()(loaded.exports, requireIn, loaded, filename, __dirname);
  return loaded.exports;
}

/**
 * V8 compares its version, its flags and the length of the source, but would run damaged code. The head says what V8
 * does not ask, and the code is there twice: comparing needs no module that Node has not loaded by now.
 */
function readCache(name, digest) {
  try {
    const file = readFileSync(join(__dirname, `${name}.cache`));
    const head = `${digest} ${process.version} ${process.platform} ${process.arch}`.padEnd(HEAD_BYTES);
    const half = (file.length + HEAD_BYTES) / 2;
    const isWhole = file.compare(file, half, file.length, HEAD_BYTES, half) === 0;
    return isWhole && file.latin1Slice(0, HEAD_BYTES) === head ? file.subarray(HEAD_BYTES, half) : undefined;
  } catch {
    return undefined;
  }
}

load("@PROGRAM@");
