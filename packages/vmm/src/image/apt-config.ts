/**
 * How the host's apt reaches its sources: proxies, certificates, time checks, passwords. Of all settings only
 * these are carried over; hooks and index settings of the host would run or download what the image does not
 * need. They are used while building and are removed from the image.
 */
const REACH = /^(Acquire::|Dir::Etc::netrc)/i;
const NOT_REACH = /^Acquire::(IndexTargets|Languages|GzipIndexes|CompressionTypes|cdrom|Changelogs)\b/i;

/** Picks the settings out of `apt-config dump`, one `Name "value";` a line. */
export function reachSettings(dump: string): string[] {
  return dump.split("\n").flatMap((line) => {
    const match = /^([A-Za-z0-9:._/*+-]+) "(.*)";$/.exec(line);
    const [, name = "", value = ""] = match ?? [];
    if (match === null || value === "" || value.includes('"')) return [];
    if (!REACH.test(name) || NOT_REACH.test(name)) return [];
    // `netrc` is relative to apt's own folder, which a build moves elsewhere.
    const text = /^Dir::/i.test(name) && !value.startsWith("/") ? `/etc/apt/${value}` : value;
    return [`${name} "${text}";`];
  });
}
