import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import {
  type AptSource,
  buildLine,
  guestLine,
  parseDeb822,
  parseOneLine,
  readAptSources,
} from "./apt-sources.ts";

const DEB822 = `
# A comment
Types: deb deb-src
URIs: http://mirror.test/debian
# between the fields
Suites: stable stable-updates
Components: main contrib
Signed-By: /usr/share/keyrings/a.gpg

Types: deb
Enabled: no
URIs: http://off.test
Suites: stable
Components: main

Types: deb-src
URIs: http://src.test
Suites: stable
Components: main

Types: deb
URIs: http://key.test
Suites: stable
Components: main
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 abc
 -----END PGP PUBLIC KEY BLOCK-----
`;

test("the deb822 format gives a source for each address and suite", () => {
  const sources = parseDeb822(DEB822);
  expect(sources.map((source) => `${source.uri} ${source.suite}`)).toEqual([
    "http://mirror.test/debian stable",
    "http://mirror.test/debian stable-updates",
    "http://key.test stable",
  ]);
  expect(sources[0]?.components).toEqual(["main", "contrib"]);
  expect(sources[0]?.options).toEqual({ "signed-by": "/usr/share/keyrings/a.gpg" });
});

test("a key inside a source is taken out of the options, with its empty lines", () => {
  const source = parseDeb822(DEB822).at(-1);
  expect(source?.options).toEqual({});
  expect(source?.embeddedKey).toBe(
    "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nabc\n-----END PGP PUBLIC KEY BLOCK-----\n",
  );
});

const lines: readonly (readonly [string, Partial<AptSource> | undefined])[] = [
  ["deb http://m.test/debian stable main non-free", { components: ["main", "non-free"], options: {} }],
  ["  deb   http://m.test  stable  main # why", { uri: "http://m.test", components: ["main"] }],
  ["deb [signed-by=/k.gpg arch=amd64] http://m.test stable main", { options: { "signed-by": "/k.gpg" } }],
  ["deb [ trusted=yes ] http://m.test stable main", { options: { trusted: "yes" } }],
  ["deb-src http://m.test stable main", undefined],
  ["# deb http://m.test stable main", undefined],
  ["deb http://m.test", undefined],
  ["", undefined],
];

for (const [line, expected] of lines) {
  test(`the line ${JSON.stringify(line)} gives ${expected === undefined ? "no source" : "a source"}`, () => {
    const sources = parseOneLine(line);
    if (expected === undefined) expect(sources).toEqual([]);
    else expect(sources).toEqual([expect.objectContaining({ suite: "stable", ...expected })]);
  });
}

async function withAptDir<T>(
  files: Readonly<Record<string, string>>,
  use: (dir: string) => Promise<T>,
): Promise<T> {
  const dir = await mkdtemp(join(tmpdir(), "capsem-apt-"));
  try {
    await mkdir(join(dir, "sources.list.d"));
    for (const [name, text] of Object.entries(files)) await writeFile(join(dir, name), text);
    return await use(dir);
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
}

test("of the host's sources only the release, its updates and its security fixes are taken", async () => {
  const files = {
    "sources.list": "deb http://a.test stable main\ndeb http://a.test stable-backports main\n",
    "sources.list.d/b.list": "deb http://b.test stable-security main\ndeb http://b.test unstable main\n",
    "sources.list.d/c.sources": "Types: deb\nURIs: http://c.test\nSuites: stable-updates\nComponents: main\n",
    "sources.list.d/d.list.off": "deb http://d.test stable main\n",
  };
  const sources = await withAptDir(files, (dir) => readAptSources(dir, "stable"));
  expect(sources.map((source) => source.uri)).toEqual(["http://a.test", "http://b.test", "http://c.test"]);
});

test("a host without a source for its own release cannot build", async () => {
  const files = { "sources.list": "deb http://a.test other main\n" };
  const read = withAptDir(files, (dir) => readAptSources(dir, "stable"));
  await expect(read).rejects.toMatchObject({ kind: "image_host_unsupported" });
});

test("a line for the build keeps keys and passwords", () => {
  const source = {
    uri: "https://me:word@m.test/d",
    suite: "stable",
    components: ["main"],
    options: { "signed-by": "/k" },
  };
  expect(buildLine(source)).toBe("deb [signed-by=/k] https://me:word@m.test/d stable main");
  expect(guestLine(source)).toBe("deb https://m.test/d stable main");
});

for (const uri of ["file:/srv/mirror", "cdrom:[x]/", "copy:/srv", "not an address"]) {
  test(`the address ${uri} does not get into the image`, () => {
    expect(guestLine({ uri, suite: "stable", components: ["main"], options: {} })).toBeUndefined();
  });
}
