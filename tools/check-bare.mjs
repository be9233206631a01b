// Proves the first minute on a bare machine: a root folder with Debian's minimum, Node and npm, and nothing else.
// As root the README's first command must print a guest's kernel; a user without sudo must be told what to do.
// Needs root (chroot, mounts) and mmdebstrap, which the product's own set-up installs.
import { spawnSync } from "node:child_process";
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { homedir, tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

const root = resolve(dirname(fileURLToPath(import.meta.url)), "..");
const STEP_TIMEOUT_MS = 15 * 60_000;
let failed = 0;

function run(command, args, options = {}) {
  return spawnSync(command, args, {
    encoding: "utf8",
    timeout: STEP_TIMEOUT_MS,
    maxBuffer: 64 * 1024 * 1024,
    ...options,
  });
}

function must(what, { status, stdout, stderr }) {
  if (status === 0) return;
  console.error(`Cannot ${what}:\n${stdout}\n${stderr}`);
  process.exit(1);
}

function check(what, good, detail) {
  console.log(`${good ? "ok" : "FAILED"}  ${what}`);
  if (good) return;
  failed += 1;
  console.log(detail);
}

/** The sources of the host's own release, as apt has them; the release's name is all that is asked for. */
function makeRoot(folder) {
  const codename = /^VERSION_CODENAME=(\w+)/m.exec(readFileSync("/etc/os-release", "utf8"))?.[1];
  const lists = [
    "/etc/apt/sources.list.d/debian.sources",
    "/etc/apt/sources.list.d/ubuntu.sources",
    "/etc/apt/sources.list",
  ];
  const list = lists.find((path) => existsSync(path) && readFileSync(path, "utf8").trim() !== "");
  if (list === undefined || codename === undefined)
    throw new Error("this host has no apt sources of its own release");
  must(
    "make a bare root",
    run("mmdebstrap", ["--variant=minbase", "--include=ca-certificates,adduser", codename, folder, list]),
  );
  cpSync(
    list,
    join(
      folder,
      list.endsWith(".sources") ? "etc/apt/sources.list.d/debian.sources" : "etc/apt/sources.list",
    ),
  );
  if (list.endsWith(".sources")) rmSync(join(folder, "etc/apt/sources.list"), { force: true });
  for (const name of ["resolv.conf", "hosts"])
    if (existsSync(`/etc/${name}`)) cpSync(`/etc/${name}`, join(folder, "etc", name), { dereference: true });
  cpSync("/etc/apt/apt.conf.d", join(folder, "etc/apt/apt.conf.d"), {
    recursive: true,
    filter: (path) => !/docker|packagekit|appstream/.test(path),
  });
  // The authorities that this host trusts, where they are more than Debian's.
  const bundle = "etc/ssl/certs/ca-certificates.crt";
  if (existsSync(`/${bundle}`)) cpSync(`/${bundle}`, join(folder, bundle), { dereference: true });
}

/** Node's one binary and npm's folder, as somebody who installed Node has them. */
function addNode(folder) {
  cpSync(process.execPath, join(folder, "usr/local/bin/node"));
  const npm = run("npm", ["root", "-g"]).stdout.trim();
  cpSync(join(npm, "npm"), join(folder, "usr/local/lib/node_modules/npm"), {
    recursive: true,
    dereference: true,
  });
  writeFileSync(
    join(folder, "usr/local/bin/npm"),
    '#!/bin/sh\nexec node /usr/local/lib/node_modules/npm/bin/npm-cli.js "$@"\n',
    { mode: 0o755 },
  );
  writeFileSync(
    join(folder, "usr/local/bin/npx"),
    '#!/bin/sh\nexec node /usr/local/lib/node_modules/npm/bin/npx-cli.js "$@"\n',
    { mode: 0o755 },
  );
  // How this host reaches its npm registry, where that is set.
  for (const home of ["root", "home/someone"]) {
    mkdirSync(join(folder, home), { recursive: true });
    if (existsSync(join(homedir(), ".npmrc"))) {
      const lines = readFileSync(join(homedir(), ".npmrc"), "utf8")
        .split("\n")
        .filter((line) => !line.startsWith("nodedir"));
      writeFileSync(join(folder, home, ".npmrc"), lines.join("\n"));
    }
  }
}

/** How this host reaches the network: proxies, and authorities in files that are copied along. */
function networkWords(folder) {
  const words = [];
  for (const [name, value] of Object.entries(process.env)) {
    if (/^(https?_proxy|no_proxy|npm_config_\w+)$/i.test(name)) words.push(`${name}=${value}`);
    if (!/^(NODE_EXTRA_CA_CERTS|SSL_CERT_FILE|CURL_CA_BUNDLE)$/.test(name) || !existsSync(value)) continue;
    mkdirSync(join(folder, dirname(value)), { recursive: true });
    cpSync(value, join(folder, value), { dereference: true });
    words.push(`${name}=${value}`);
  }
  return words.map(quote).join(" ");
}

function addProject(folder) {
  const target = join(folder, "srv/capsem");
  mkdirSync(target, { recursive: true });
  const archive = run("git", ["-C", root, "archive", "HEAD"], { encoding: "buffer" });
  must("read the project's last commit", archive);
  must("unpack the project", run("tar", ["-x", "-C", target], { input: archive.stdout }));
}

/** A command in the bare root, in namespaces of its own: nothing of it outlives this call. */
function inside(folder, user, command) {
  const script = [
    `mount --rbind /dev ${folder}/dev`,
    `mount -t proc proc ${folder}/proc`,
    `mount -t sysfs -o ro sysfs ${folder}/sys`,
    `mount -t tmpfs -o mode=1777 tmpfs ${folder}/tmp`,
    `exec chroot ${user === "root" ? "" : "--userspec=1500:1500 "}${folder} /usr/bin/env -i HOME=${user === "root" ? "/root" : "/home/someone"} PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 ${networkWords(folder)} bash -c ${quote(command)}`,
  ].join(" && ");
  return run("unshare", ["--mount", "--pid", "--fork", "--kill-child", "sh", "-c", script], { input: "" });
}

const quote = (text) => `'${text.replaceAll("'", "'\\''")}'`;

if (process.getuid() !== 0) {
  console.log("check:bare needs root: it makes a root folder and enters it");
  process.exit(1);
}
const folder = mkdtempSync(join(process.env.CAPSEM_BARE_DIR ?? tmpdir(), "capsem-bare-"));
try {
  makeRoot(folder);
  addNode(folder);
  addProject(folder);
  must("give the user a home", run("chown", ["-R", "1500:1500", join(folder, "home/someone")]));

  const user = inside(folder, "someone", "cd /srv/capsem && ./capsem run 'uname -a'");
  check(
    "a user without sudo is told the one command and nothing hangs",
    user.status === 125 && /apt-get install --no-install-recommends .*qemu-system/.test(user.stderr),
    `${user.status}\n${user.stdout}\n${user.stderr}`,
  );

  const started = Date.now();
  const first = inside(
    folder,
    "root",
    "cd /srv/capsem && ./capsem run 'uname -a'; code=$?; ./capsem service stop; exit $code",
  );
  check(
    "root's first command prints a guest's kernel",
    first.status === 0 && /^Linux .*cloud/m.test(first.stdout),
    `${first.status}\n${first.stdout}\n${first.stderr}`,
  );
  console.log(`        after ${Math.round((Date.now() - started) / 1000)} s`);

  for (const step of ["packages", "build", "image"]) {
    const cut = inside(
      folder,
      "root",
      `cd /srv/capsem && rm -rf dist/.ready && CAPSEM_STOP_AFTER=${step} ./capsem version; ./capsem version`,
    );
    check(
      `an interrupt after ${step} and a second run succeed`,
      cut.status === 0 && /capsem \d/.test(cut.stdout),
      `${cut.status}\n${cut.stdout}\n${cut.stderr}`,
    );
  }
  const second = inside(
    folder,
    "root",
    "cd /srv/capsem && ./capsem run \"python3 -c 'print(6*7)'\"; code=$?; ./capsem service stop; exit $code",
  );
  check(
    "a later command works at once",
    second.status === 0 && second.stdout.startsWith("42\n"),
    `${second.status}\n${second.stdout}\n${second.stderr}`,
  );
} finally {
  rmSync(folder, { recursive: true, force: true });
}
console.log(failed === 0 ? "the first minute holds on a bare machine" : `${failed} checks failed`);
process.exit(failed === 0 ? 0 : 1);
