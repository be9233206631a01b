import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { imageFailure } from "./error.ts";

/** One package source of the host that serves the image's suite. */
export interface AptSource {
  readonly uri: string;
  readonly suite: string;
  readonly components: readonly string[];
  /** Options as in the one-line format: `signed-by`, `trusted`. Never copied into the image. */
  readonly options: Readonly<Record<string, string>>;
  /** A key written into the source itself; the builder puts it into a file and names that in `signed-by`. */
  readonly embeddedKey?: string;
}

/** Reads the host's sources as apt does: `sources.list`, then the parts in the order of their names. */
export async function readAptSources(aptDir: string, codename: string): Promise<AptSource[]> {
  const sources: AptSource[] = [];
  for (const path of await sourceFiles(aptDir)) {
    const text = await readFile(path, "utf8");
    sources.push(...(path.endsWith(".sources") ? parseDeb822(text) : parseOneLine(text)));
  }
  const wanted = sources.filter((source) => isOfRelease(source.suite, codename));
  if (!wanted.some((source) => source.suite === codename)) {
    throw imageFailure(
      "image_host_unsupported",
      `Cannot build the image: apt on this host has no source for '${codename}' (see ${aptDir})`,
    );
  }
  return wanted;
}

async function sourceFiles(aptDir: string): Promise<string[]> {
  const list = async (dir: string): Promise<string[]> => readdir(dir).catch(() => []);
  const parts = (await list(join(aptDir, "sources.list.d")))
    .filter((name) => /^[A-Za-z0-9_.-]+\.(list|sources)$/.test(name))
    .sort();
  const main = (await list(aptDir)).filter((name) => name === "sources.list");
  return [
    ...main.map((name) => join(aptDir, name)),
    ...parts.map((name) => join(aptDir, "sources.list.d", name)),
  ];
}

/** The release itself, its updates and its security fixes; backports and foreign repositories are left out. */
function isOfRelease(suite: string, codename: string): boolean {
  return [codename, `${codename}-updates`, `${codename}-security`, `${codename}/updates`].includes(suite);
}

const ONE_LINE = /^deb\s+(?:\[([^\]]*)\]\s*)?(\S+)\s+(\S+)((?:\s+\S+)*)$/;

export function parseOneLine(text: string): AptSource[] {
  return text.split("\n").flatMap((line) => {
    const match = ONE_LINE.exec(line.replace(/#.*/, "").trim());
    if (match === null) return [];
    const [, options = "", uri = "", suite = "", components = ""] = match;
    const pairs = words(options).flatMap((word) => {
      const at = word.indexOf("=");
      return at > 0 ? [[word.slice(0, at).toLowerCase(), word.slice(at + 1)] as const] : [];
    });
    return [{ uri, suite, components: words(components), options: keptOptions(new Map(pairs)) }];
  });
}

/** The deb822 format: stanzas of `Field: value`, continued by indented lines, `#` in the first column. */
export function parseDeb822(text: string): AptSource[] {
  const lines = text.split("\n").filter((line) => !line.startsWith("#"));
  return lines
    .join("\n")
    .split(/\n\s*\n/)
    .flatMap((stanza) => sourcesOfStanza(fieldsOf(stanza)));
}

function fieldsOf(stanza: string): Map<string, string> {
  const fields = new Map<string, string>();
  let name = "";
  for (const line of stanza.split("\n")) {
    if (/^[ \t]/.test(line)) {
      fields.set(name, `${fields.get(name) ?? ""}\n${line.slice(1)}`);
      continue;
    }
    const at = line.indexOf(":");
    if (at < 1) continue;
    name = line.slice(0, at).trim().toLowerCase();
    fields.set(name, line.slice(at + 1).trim());
  }
  return fields;
}

function sourcesOfStanza(fields: Map<string, string>): AptSource[] {
  if (!words(fields.get("types") ?? "").includes("deb")) return [];
  if (/^(no|false|0)$/i.test(fields.get("enabled") ?? "yes")) return [];
  const signedBy = fields.get("signed-by") ?? "";
  const isEmbedded = signedBy.includes("-----BEGIN");
  if (isEmbedded) fields.delete("signed-by");
  const components = words(fields.get("components") ?? "");
  const options = keptOptions(fields);
  return words(fields.get("uris") ?? "").flatMap((uri) =>
    words(fields.get("suites") ?? "").map((suite) => ({
      uri,
      suite,
      components,
      options,
      ...(isEmbedded ? { embeddedKey: armoured(signedBy) } : {}),
    })),
  );
}

/** In deb822 an empty line of the key is written as a lone dot. */
function armoured(value: string): string {
  const lines = value.split("\n").map((line) => (line.trim() === "." ? "" : line.trim()));
  return `${lines.join("\n").trim()}\n`;
}

function keptOptions(fields: ReadonlyMap<string, string>): Record<string, string> {
  const kept: Record<string, string> = {};
  for (const name of ["signed-by", "trusted"]) {
    const value = fields.get(name);
    if (value !== undefined && value !== "") kept[name] = words(value).join(",");
  }
  return kept;
}

/** A line for the build: it may name keys of the host. */
export function buildLine(source: AptSource): string {
  const options = Object.entries(source.options).map(([name, value]) => `${name}=${value}`);
  const bracket = options.length === 0 ? "" : `[${options.join(" ")}] `;
  return `deb ${bracket}${source.uri} ${source.suite} ${source.components.join(" ")}`;
}

/** A line for the image, or none: what only this host can reach and what may be secret stays out of it. */
export function guestLine(source: AptSource): string | undefined {
  if (!/^https?:\/\//.test(source.uri) || !URL.canParse(source.uri)) return undefined;
  const uri = new URL(source.uri);
  uri.username = "";
  uri.password = "";
  uri.search = "";
  return `deb ${uri.href.replace(/\/$/, "")} ${source.suite} ${source.components.join(" ")}`;
}

function words(text: string): string[] {
  return text.split(/\s+/).filter((word) => word !== "");
}
