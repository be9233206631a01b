import { expect, test } from "vitest";
import { reachSettings } from "./apt-config.ts";

test("settings that say how to reach the sources are carried over", () => {
  const dump = [
    'Acquire "";',
    'Acquire::http::Proxy "http://proxy.test:3128";',
    'Acquire::Check-Valid-Until "false";',
    'Acquire::https::CaInfo "/etc/ssl/own.pem";',
    'Dir::Etc::netrc "auth.conf";',
    'Dir::Etc::netrcparts "/srv/auth.conf.d";',
  ].join("\n");
  expect(reachSettings(dump)).toEqual([
    'Acquire::http::Proxy "http://proxy.test:3128";',
    'Acquire::Check-Valid-Until "false";',
    'Acquire::https::CaInfo "/etc/ssl/own.pem";',
    'Dir::Etc::netrc "/etc/apt/auth.conf";',
    'Dir::Etc::netrcparts "/srv/auth.conf.d";',
  ]);
});

const left: readonly string[] = [
  'APT::Update::Post-Invoke:: "rm -rf /x";',
  'DPkg::Pre-Install-Pkgs:: "/usr/sbin/dpkg-preconfigure --apt || true";',
  'Acquire::IndexTargets::deb::DEP-11::MetaKey "x";',
  'Acquire::Languages:: "none";',
  'Dir::Cache "var/cache/apt";',
  'Acquire::Broken "a"; DPkg::Pre-Invoke "b";',
  "Acquire::NoQuotes x;",
  "",
];

for (const line of left) {
  test(`the setting ${JSON.stringify(line)} is left behind`, () => {
    expect(reachSettings(line)).toEqual([]);
  });
}
