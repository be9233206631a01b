import { CapsemError, isRecord } from "./error.ts";

/** What programs without types get wrong: a client that could never work is refused when it is made. */
export function checkGiven(given: unknown, credentials: readonly string[]): void {
  const wanted = credentials.join(" or ");
  if (!isRecord(given)) throw refusal(`an object with url and ${wanted} is needed`);
  if (given.url === undefined || given.url === "") throw refusal("url is missing");
  if (credentials.some((name) => isGiven(given[name]))) return;
  const isOfNode = isGiven(given.tokenFile);
  throw refusal(isOfNode ? 'a tokenFile is read by "@capsem/sdk/node" alone' : `${wanted} is missing`);
}

function isGiven(value: unknown): boolean {
  return value !== undefined && value !== null && value !== "";
}

function refusal(why: string): CapsemError {
  return new CapsemError("invalid_input", `Cannot create client: ${why}`);
}
