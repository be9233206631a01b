import type { Route } from "@capsem/api";

/** One right value for each form of a path parameter; a new form needs its own here. */
const CANDIDATES = [
  "vm_abcdefghij234567",
  "job_abcdefghij234567",
  "ask_abcdefghij234567",
  `credential:blake3:${"a".repeat(64)}`,
  "service",
  "name",
  "1",
];

/** A path that the route's own schema takes. */
export function samplePath(route: Route): string {
  let path = route.path;
  for (const [, name = ""] of route.path.matchAll(/\{(\w+)\}/g)) {
    const schema = route.params?.shape[name] as
      | { safeParse(value: unknown): { success: boolean } }
      | undefined;
    const value = CANDIDATES.find((one) => schema?.safeParse(one).success === true);
    if (value === undefined) throw new Error(`no sample for {${name}} of ${route.path}`);
    path = path.replace(`{${name}}`, value);
  }
  return path;
}
