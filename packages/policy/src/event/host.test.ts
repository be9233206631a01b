import { expect, test } from "vitest";
import { Random } from "../testing/random.ts";
import { canonicalHost, canonicalIp, isInDomain, isInNetwork, parseIp, parseNetwork } from "./host.ts";

test.each([
  ["Example.COM", "example.com"],
  ["example.com.", "example.com"],
  ["ex%61mple.com", "example.com"],
  ["bücher.example", "xn--bcher-kva.example"],
  ["127.0.0.1", "127.0.0.1"],
  ["127.1", "127.0.0.1"],
  ["0x7f.0.0.1", "127.0.0.1"],
  ["2130706433", "127.0.0.1"],
  ["017700000001", "127.0.0.1"],
  ["127.0.0.1.", "127.0.0.1"],
  ["[::1]", "::1"],
  ["::1", "::1"],
  ["0:0:0:0:0:0:0:1", "::1"],
  ["[::FFFF:10.0.0.1]", "10.0.0.1"],
  ["::ffff:a00:1", "10.0.0.1"],
  ["_dmarc.example.com", "_dmarc.example.com"],
  ["*.example.com", "*.example.com"],
  [".", "."],
])("the host %s is %s", (written, one) => {
  expect(canonicalHost(written)).toBe(one);
  expect(canonicalHost(one)).toBe(one);
});

test.each([
  "",
  "a b",
  "a/b",
  "a@b",
  "a?b",
  "a#b",
  "a\\b",
  "a\tb",
  "a\u0000b",
  "user:pw",
  "host:80",
  "[::1",
  "::1%eth0",
  ":",
])("%j is no host", (written) => {
  expect(canonicalHost(written)).toBeNull();
});

test("an address is an address in any spelling, and a name is none", () => {
  expect(canonicalIp("0x7f000001")).toBe("127.0.0.1");
  expect(canonicalIp("example.com")).toBeNull();
  expect(parseIp("1.2.3.256")).toBeNull();
  expect(parseIp("1::2::3")).toBeNull();
  expect(parseIp("2001:db8::1")?.value).toBe(0x20010db8000000000000000000000001n);
});

test.each([
  ["10.1.2.3", "10.0.0.0/8", true],
  ["11.1.2.3", "10.0.0.0/8", false],
  ["10.1.2.3", "0.0.0.0/0", true],
  ["10.1.2.3", "10.1.2.3/32", true],
  ["10.1.2.4", "10.1.2.3/32", false],
  ["fe80::1", "fe80::/10", true],
  ["::1", "fe80::/10", false],
  ["::1", "0.0.0.0/0", false],
  ["10.0.0.1", "::/0", false],
])("%s in %s is %s", (address, network, expected) => {
  const [ip, parsed] = [parseIp(address), parseNetwork(network)];
  if (ip === null || parsed === null) throw new Error("the table is wrong");
  expect(isInNetwork(ip, parsed)).toBe(expected);
});

test.each(["10.0.0.1/8", "10.0.0.0", "10.0.0.0/33", "::/129", "x/8", "10.0.0.0/-1", "10.0.0.0/8/8"])(
  "%s is no network",
  (text) => {
    expect(parseNetwork(text)).toBeNull();
  },
);

test("below a domain means a dot before it, and an address is below nothing", () => {
  expect(isInDomain("a.example.com", "example.com")).toBe(true);
  expect(isInDomain("example.com", "example.com")).toBe(true);
  expect(isInDomain("badexample.com", "example.com")).toBe(false);
  expect(isInDomain("10.0.0.1", "0.1")).toBe(false);
});

test("names that skip the URL parser are what it makes of them", () => {
  const random = new Random(71);
  const letters = [..."abz019-_."];
  let skipped = 0;
  for (let round = 0; round < 3_000; round += 1) {
    const name = Array.from({ length: 1 + random.below(8) }, () => random.pick(letters)).join("");
    const parsed = URL.canParse(`http://${name}/`)
      ? new URL(`http://${name}/`).hostname.replace(/\.+$/, "")
      : name;
    if (canonicalHost(name) !== name || name === ".") continue;
    skipped += 1;
    expect(parsed).toBe(name);
  }
  expect(skipped).toBeGreaterThan(300);
});
