import { ROUTES, type RouteName } from "@capsem/api";
import { expect, test } from "vitest";
import { matchRoute } from "./match-route.ts";

const ID = "vm_abcdefghij234567";
const JOB = "job_abcdefghij234567";

test("every route of the table is found by its own path", () => {
  for (const name of Object.keys(ROUTES) as RouteName[]) {
    const { method, path } = ROUTES[name];
    const found = matchRoute(method, path.replace("{id}", ID).replace("{job}", JOB));
    expect(found?.name).toBe(name);
    if (path.includes("{id}")) expect(found?.params.id).toBe(ID);
    if (path.includes("{job}")) expect(found?.params.job).toBe(JOB);
  }
});

test.each([
  ["GET", "/"],
  ["GET", ""],
  ["GET", "/vms"],
  ["GET", "/vms/list/"],
  ["GET", "//vms/list"],
  ["POST", "/vms/list"],
  ["GET", `/vms/${ID}/info/x`],
  ["GET", "/vms//info"],
  ["GET", "/vms/%zz/info"],
  ["GET", "/VMS/list"],
  ["get", "/vms/list"],
])("%s %s is no route", (method, path) => {
  expect(matchRoute(method, path)).toBeNull();
});

test("path parameters are decoded once", () => {
  expect(matchRoute("GET", "/vms/a%2Fb/info")?.params.id).toBe("a/b");
  expect(matchRoute("GET", "/vms/a%252Fb/info")?.params.id).toBe("a%2Fb");
});
