/**
 * What an address is of, by IANA's registries of special-purpose addresses. `public` is what the Internet routes; all
 * else is some machine's or network's own.
 */
export type AddressKind =
  | "public"
  | "unspecified"
  | "loopback"
  | "link_local"
  /** Answers with credentials of the machine. */
  | "metadata"
  | "private"
  /** Of a provider's own network, 100.64.0.0/10. */
  | "shared"
  | "multicast"
  | "reserved";

/** Null for what is no address in its one spelling: four decimals, or IPv6 without brackets and without a zone. */
export function addressKind(address: string): AddressKind | null {
  const v4 = parseV4(address);
  if (v4 !== null) return kindOfV4(v4);
  const v6 = parseV6(address);
  return v6 === null ? null : kindOfV6(v6);
}

/** First match counts. `[network, bits, kind]` */
const V4: readonly (readonly [number, number, AddressKind])[] = [
  ["169.254.169.254", 32, "metadata"],
  ["169.254.170.2", 32, "metadata"],
  ["169.254.170.23", 32, "metadata"],
  // Alibaba, Oracle, Azure: the last one lies among public addresses.
  ["100.100.100.200", 32, "metadata"],
  ["192.0.0.192", 32, "metadata"],
  ["168.63.129.16", 32, "metadata"],
  ["0.0.0.0", 8, "unspecified"],
  ["10.0.0.0", 8, "private"],
  ["100.64.0.0", 10, "shared"],
  ["127.0.0.0", 8, "loopback"],
  ["169.254.0.0", 16, "link_local"],
  ["172.16.0.0", 12, "private"],
  ["192.0.0.0", 24, "reserved"],
  ["192.0.2.0", 24, "reserved"],
  ["192.31.196.0", 24, "reserved"],
  ["192.52.193.0", 24, "reserved"],
  ["192.88.99.0", 24, "reserved"],
  ["192.168.0.0", 16, "private"],
  ["192.175.48.0", 24, "reserved"],
  // For measurements; proxies on a machine also hand these out instead of real ones.
  ["198.18.0.0", 15, "private"],
  ["198.51.100.0", 24, "reserved"],
  ["203.0.113.0", 24, "reserved"],
  ["224.0.0.0", 4, "multicast"],
  ["240.0.0.0", 4, "reserved"],
].map(([network, bits, kind]) => [parseV4(String(network)) ?? 0, Number(bits), kind as AddressKind]);

function kindOfV4(address: number): AddressKind {
  for (const [network, bits, kind] of V4) {
    if (address >>> (32 - bits) === network >>> (32 - bits)) return kind;
  }
  return "public";
}

type Groups = readonly number[];

/** As above; `embedded` at which group an IPv4 address lies, whose kind is then the answer. */
const V6: readonly (readonly [Groups, number, AddressKind | { readonly embedded: number }])[] = [
  ["fd00:ec2::254", 128, "metadata"],
  ["fd00:ec2::23", 128, "metadata"],
  ["fd20:ce::254", 128, "metadata"],
  ["::", 128, "unspecified"],
  ["::1", 128, "loopback"],
  // IPv4 in other words: mapped, translated, compatible, NAT64, 6to4.
  ["::ffff:0:0", 96, 6],
  ["::ffff:0:0:0", 96, 6],
  ["::", 96, 6],
  ["64:ff9b::", 96, 6],
  ["2002::", 16, 1],
  ["2001:db8::", 32, "reserved"],
  // Protocols, Teredo and ORCHID among them.
  ["2001::", 23, "reserved"],
  ["3fff::", 20, "reserved"],
  ["fc00::", 7, "private"],
  ["fe80::", 10, "link_local"],
  ["fec0::", 10, "private"],
  ["ff00::", 8, "multicast"],
].map(([network, bits, what]) => [
  parseV6(String(network)) ?? [],
  Number(bits),
  typeof what === "number" ? { embedded: what } : (what as AddressKind),
]);

/** Global unicast, of which everything that is public is a part. */
const GLOBAL_BITS = 3;
const GLOBAL = 0x2000;

function kindOfV6(address: Groups): AddressKind {
  for (const [network, bits, what] of V6) {
    if (!hasPrefix(address, network, bits)) continue;
    return typeof what === "string" ? what : kindOfV4(v4At(address, what.embedded));
  }
  if (!hasPrefix(address, [GLOBAL], GLOBAL_BITS)) return "reserved";
  // ISATAP: a tunnel to the IPv4 address that the interface is named by.
  const isTunnel = ((address[4] ?? 0) & 0xfdff) === 0 && address[5] === 0x5efe;
  return isTunnel ? kindOfV4(v4At(address, 6)) : "public";
}

function v4At(address: Groups, at: number): number {
  return (((address[at] ?? 0) << 16) | (address[at + 1] ?? 0)) >>> 0;
}

function hasPrefix(address: Groups, network: Groups, bits: number): boolean {
  for (let group = 0; group * 16 < bits; group += 1) {
    const open = Math.max(0, 16 - (bits - group * 16));
    if ((address[group] ?? 0) >>> open !== (network[group] ?? 0) >>> open) return false;
  }
  return true;
}

/** Four decimals without leading zeros, which some read as octal. */
function parseV4(text: string): number | null {
  const found = /^(\d{1,3})\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})$/.exec(text);
  if (found === null) return null;
  let value = 0;
  for (const part of found.slice(1)) {
    if (Number(part) > 255 || (part.length > 1 && part.startsWith("0"))) return null;
    value = value * 256 + Number(part);
  }
  return value;
}

/** Eight groups, whatever the spelling; the URL parser brings an IPv4 tail into groups. */
function parseV6(text: string): Groups | null {
  if (!text.includes(":") || text.length > 45) return null;
  let hostname: string;
  try {
    hostname = new URL(`http://[${text}]/`).hostname;
  } catch {
    return null;
  }
  const [head = "", tail] = hostname.slice(1, -1).split("::");
  const groupsOf = (part: string) =>
    part === "" ? [] : part.split(":").map((group) => Number.parseInt(group, 16));
  const left = groupsOf(head);
  if (tail === undefined) return left;
  const right = groupsOf(tail);
  return [...left, ...Array<number>(8 - left.length - right.length).fill(0), ...right];
}
