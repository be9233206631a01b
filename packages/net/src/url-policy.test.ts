import { expect, test } from "vitest";
import { addressKind } from "./address.ts";
import { addressRefusal, canonicalGrant, judgeUrl } from "./url-policy.ts";

/** Each is this machine, its network or its metadata, in some spelling. None is dialled without a grant. */
const REFUSED_HOSTS: readonly string[] = [
  ...["127.0.0.1", "127.1", "127.0.1", "0x7f.1", "0x7f000001", "2130706433", "017700000001", "0177.0.0.1"],
  ...["127.0.0.1.", "127.255.255.254", "%31%32%37.0.0.1", "１２７.0.0.1", "①②⑦.0.0.1", "127。0。0。1"],
  ...["0", "0.0.0.0", "0x0", "0.1.2.3", "[::]", "[::1]", "[0:0:0:0:0:0:0:1]", "[::ffff:127.0.0.1]"],
  ...["[::ffff:7f00:1]", "[::127.0.0.1]", "[::ffff:0:127.0.0.1]", "[64:ff9b::127.0.0.1]", "[2002:7f00:1::]"],
  ...["[64:ff9b::10.0.0.1]", "[64:ff9b:1::1]", "[2002:a9fe:a9fe::1]", "[2001:db8::1]", "[2001:0:1::1]"],
  ...["[2600::5efe:10.0.0.1]", "[2600::200:5efe:127.0.0.1]", "[fe80::1]", "[fec0::1]", "[fc00::1]"],
  ...[
    "[fd00:ec2::254]",
    "[fd20:ce::254]",
    "[ff02::1]",
    "[::2]",
    "[100::1]",
    "[4000::1]",
    "[::ffff:a9fe:a9fe]",
  ],
  ...["10.0.0.1", "10.1", "172.16.0.1", "172.31.255.255", "192.168.0.1", "192.168.257", "100.64.0.1"],
  ...["100.100.100.200", "169.254.169.254", "169.254.1.1", "0xa9fea9fe", "2852039166", "168.63.129.16"],
  ...["192.0.0.192", "198.18.0.1", "192.0.2.1", "203.0.113.9", "224.0.0.1", "239.1.1.1", "240.0.0.1"],
  ...["255.255.255.255", "localhost", "LOCALHOST", "localhost.", "a.localhost", "LocalHost.", "ｌocalhost"],
  ...["printer.local", "db.internal", "metadata.google.internal", "x.internal.", "router.lan", "intranet"],
  ...["instance-data", "nas.home.arpa", "x.localdomain", "mcp.capsem.internal"],
];

test.each(REFUSED_HOSTS)("%s is refused, and says what it is", (host) => {
  const judgement = judgeUrl(`http://${host}/mcp`);
  expect(judgement.kind).toBe("refused");
  expect(judgement.kind === "refused" && judgement.reason).toMatch(/ is | are /);
});

const MALFORMED: readonly (readonly [string, RegExp])[] = [
  ["ftp://example.com/", /neither http nor https/],
  ["file:///etc/passwd", /neither/],
  ["javascript:alert(1)", /neither/],
  ["example.com/mcp", /no URL/],
  ["", /no URL/],
  ["http://", /no URL/],
  ["http:example.com", /no \/\//],
  ["http:/example.com", /no \/\//],
  ["http://user@example.com/", /user or a password/],
  ["http://user:pw@example.com/", /user or a password/],
  ["http://@example.com/", /user or a password/],
  ["http://example.com@127.0.0.1/", /user or a password/],
  ["http://example.com\\@127.0.0.1/", /backslash/],
  ["http:\\\\127.0.0.1/", /backslash/],
  ["http://127.0.0\t.1/", /control character/],
  ["http://exa\nmple.com/", /control character/],
  [" http://example.com/", /space/],
  ["http://example.com/a b", /space/],
  ["http://127.0.0.1../", /no name and no address/],
  ["http://a..example.com/", /no name and no address/],
  ["http://example.com../", /no name and no address/],
  ["http://-a.example.com/", /no name and no address/],
  ["http://[fe80::1%25eth0]/", /no URL/],
  ["http://999.1.1.1/", /no URL/],
  ["http://example.com:0/", /port is 0/],
  ["http://example.com:65536/", /no URL/],
  [`http://${"a".repeat(64)}.com/`, /no name and no address/],
  [`http://example.com/${"a".repeat(8_192)}`, /characters/],
];

test.each(MALFORMED)("%j is refused", (url, reason) => {
  const judgement = judgeUrl(url, ["127.0.0.1:80", "example.com:80"]);
  expect(judgement).toMatchObject({ kind: "refused", grant: null });
  expect(judgement.kind === "refused" && judgement.reason).toMatch(reason);
});

const ACCEPTED: readonly (readonly [string, string, number, string])[] = [
  ["https://example.com/mcp?x=1#y", "example.com", 443, "/mcp?x=1"],
  ["HTTPS://EXAMPLE.COM./mcp", "example.com", 443, "/mcp"],
  ["http://example.com:8080", "example.com", 8080, "/"],
  ["https://bücher.example/", "xn--bcher-kva.example", 443, "/"],
  ["https://1.1.1.1/", "1.1.1.1", 443, "/"],
  ["https://16843009/", "1.1.1.1", 443, "/"],
  ["https://[2606:4700::1111]:8443/a/../b", "2606:4700::1111", 8443, "/b"],
  ["https://[64:ff9b::1.1.1.1]/", "64:ff9b::101:101", 443, "/"],
  ["https://127.example.org/", "127.example.org", 443, "/"],
  ["https://localhost.example.com/", "localhost.example.com", 443, "/"],
  ["https://a_b.example.com/", "a_b.example.com", 443, "/"],
];

test.each(ACCEPTED)("%s is taken, in its one spelling", (url, host, port, path) => {
  const judgement = judgeUrl(url);
  expect(judgement).toMatchObject({ kind: "ok", target: { host, port, path, isGranted: false } });
});

test("a grant counts for exactly its host and port, however either is spelled", () => {
  const taken = (url: string, grant: string) => judgeUrl(url, [grant]).kind;
  expect(taken("http://127.0.0.1:3000/", "127.0.0.1:3000")).toBe("ok");
  expect(taken("http://0x7f.1:3000/", "127.0.0.1:3000")).toBe("ok");
  expect(taken("http://127.0.0.1:3000/", "0x7f000001:3000")).toBe("ok");
  expect(taken("http://localhost/", "LOCALHOST.:80")).toBe("ok");
  expect(taken("https://[::1]/", "[::1]:443")).toBe("ok");
  expect(taken("https://[::1]/", "[0:0::1]:443")).toBe("ok");
  expect(taken("http://db.internal:8080/", "db.internal:8080")).toBe("ok");

  expect(taken("http://127.0.0.1:3001/", "127.0.0.1:3000")).toBe("refused");
  expect(taken("http://127.0.0.2:3000/", "127.0.0.1:3000")).toBe("refused");
  expect(taken("http://localhost:3000/", "127.0.0.1:3000")).toBe("refused");
  expect(taken("http://[::ffff:127.0.0.1]:3000/", "127.0.0.1:3000")).toBe("refused");
  expect(taken("http://x.localhost:3000/", "localhost:3000")).toBe("refused");
});

test("what no grant opens says so, and what one would open names it", () => {
  expect(judgeUrl("http://localhost:3000/")).toMatchObject({ grant: "localhost:3000" });
  expect(judgeUrl("https://[::1]/")).toMatchObject({ grant: "[::1]:443" });
  expect(judgeUrl("http://169.254.169.254/")).toMatchObject({ grant: "169.254.169.254:80" });
  expect(judgeUrl("http://0.0.0.0:3000/", ["0.0.0.0:3000"])).toMatchObject({ kind: "refused", grant: null });
  expect(judgeUrl("http://224.0.0.1/", ["224.0.0.1:80"])).toMatchObject({ kind: "refused", grant: null });
});

const GRANTS: readonly (readonly [string, string | null])[] = [
  ["localhost:3000", "localhost:3000"],
  ["[::1]:80", "[::1]:80"],
  ["localhost", null],
  ["localhost:0", null],
  ["localhost:99999", null],
  ["http://localhost:80", null],
  ["user@localhost:80", null],
  ["::1:80", null],
  [":80", null],
];
test.each(GRANTS)("the grant %j is %j", (grant, canonical) => {
  expect(canonicalGrant(grant)).toBe(canonical);
});

function targetOf(url: string, grants: readonly string[] = []) {
  const judgement = judgeUrl(url, grants);
  if (judgement.kind !== "ok") throw new Error(judgement.reason);
  return judgement.target;
}

test("a name is refused for any address that is not public", () => {
  const target = targetOf("https://example.com/");
  expect(addressRefusal("93.184.215.14", target)).toBeNull();
  expect(addressRefusal("2606:4700::1111", target)).toBeNull();
  const wrong = [
    "127.0.0.1",
    "10.0.0.1",
    "169.254.169.254",
    "::1",
    "fe80::1",
    "fe80::1%eth0",
    "::ffff:10.0.0.1",
  ];
  for (const address of [...wrong, "100.64.0.1", "0.0.0.0", "", "example.org", "127.1", "01.1.1.1"]) {
    expect([address, addressRefusal(address, target)]).toEqual([address, expect.stringMatching(/ is /)]);
  }
});

test("a granted name may be private, but is no way to the metadata of a machine", () => {
  const target = targetOf("http://db.internal:8080/", ["db.internal:8080"]);
  for (const address of ["10.0.0.1", "127.0.0.1", "100.64.0.1", "fd12::1", "93.184.215.14"]) {
    expect([address, addressRefusal(address, target)]).toEqual([address, null]);
  }
  for (const address of [
    "169.254.169.254",
    "fd00:ec2::254",
    "169.254.0.9",
    "fe80::1",
    "224.0.0.1",
    "0.0.0.0",
  ]) {
    expect([address, addressRefusal(address, target)]).toEqual([address, expect.stringMatching(/ is at /)]);
  }
});

test("a granted localhost is this machine and nothing else", () => {
  const target = targetOf("http://localhost:3000/", ["localhost:3000"]);
  expect(addressRefusal("127.0.0.1", target)).toBeNull();
  expect(addressRefusal("::1", target)).toBeNull();
  for (const address of ["10.0.0.1", "93.184.215.14", "169.254.169.254"]) {
    expect(addressRefusal(address, target)).toMatch(/^localhost is at/);
  }
});

test("the neighbours of each network are not of it", () => {
  const kinds = (addresses: readonly string[]) => addresses.map((each) => addressKind(each));
  const edges = [
    "9.255.255.255",
    "11.0.0.0",
    "100.63.255.255",
    "100.128.0.0",
    "126.255.255.255",
    "128.0.0.0",
  ];
  const more = [
    "172.15.255.255",
    "172.32.0.0",
    "192.167.255.255",
    "192.169.0.0",
    "198.17.255.255",
    "198.20.0.0",
  ];
  const v6 = ["2001:200::1", "2001:db7::1", "2001:db9::1", "3fff:1000::1", "2003::1", "2000::1"];
  expect(kinds([...edges, ...more, "223.255.255.255", "169.253.1.1", "169.255.1.1", ...v6])).toEqual(
    Array(edges.length + more.length + 3 + v6.length).fill("public"),
  );
  expect(kinds(["100.64.0.0", "100.127.255.255", "172.31.255.255", "198.19.255.255"])).toEqual([
    ...["shared", "shared", "private", "private"],
  ]);
});
