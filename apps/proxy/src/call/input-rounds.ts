import { Failure, sleep } from "@capsem/base";
import { membersOf } from "@capsem/mcp-protocol";
import { PROXY_LIMITS } from "../limits.ts";
import type { Answer } from "./caller.ts";
import type { Exchange } from "./exchange.ts";

/** A server that only wants to be asked again, because it is busy, is not asked at once. */
const PACE_MS = 250;

/**
 * A client of the older protocol at a server of the newer one: where the server's answer is a question, the client is
 * asked, and the server is called again with what it says. Throws Failure("upstream_failed") for a server that never
 * comes to an end.
 */
export async function throughRounds(exchange: Exchange, paramsText: string): Promise<Answer> {
  let params = paramsText;
  for (let round = 0; round <= PROXY_LIMITS.inputRoundsMax; round += 1) {
    const answer = await exchange.run(params);
    if (answer.kind === "error") return answer;
    const members = membersOf(answer.text);
    if (members.get("resultType") !== '"input_required"') return answer;
    if (exchange.caller.requestId === null) throw failed("it asks for input, and nobody is there to give it");
    const responses = await responsesTo(exchange, members.get("inputRequests"));
    if (responses === undefined) await sleep(PACE_MS, exchange.signal);
    params = withInput(paramsText, responses, members.get("requestState"));
  }
  throw failed(`it asks for input more than ${PROXY_LIMITS.inputRoundsMax} times`);
}

/** All at once, as a person may see them together. Undefined: it asks nothing. */
async function responsesTo(exchange: Exchange, requests: string | undefined): Promise<string | undefined> {
  const asked = requests === undefined ? [] : [...membersOf(requests)];
  if (asked.length === 0) return undefined;
  if (asked.length > PROXY_LIMITS.inputRequestsMax) throw failed("it asks too much at once");
  const answers = await Promise.all(
    asked.map(async ([key, request]) => {
      const members = membersOf(request);
      const method = JSON.parse(members.get("method") ?? '""') as string;
      const { kind, text } = await exchange.input(method, members.get("params"));
      if (kind === "error") throw failed(`the client does not answer "${method}"`);
      return `${JSON.stringify(key)}:${text}`;
    }),
  );
  return `{${answers.join(",")}}`;
}

function withInput(
  paramsText: string,
  responses: string | undefined,
  requestState: string | undefined,
): string {
  const more = [
    ...(responses === undefined ? [] : [`"inputResponses":${responses}`]),
    ...(requestState === undefined ? [] : [`"requestState":${requestState}`]),
  ];
  if (more.length === 0) return paramsText;
  const body = paramsText.slice(0, paramsText.lastIndexOf("}"));
  return `${body}${body.trimEnd().endsWith("{") ? "" : ","}${more.join(",")}}`;
}

function failed(why: string): Failure {
  return new Failure("upstream_failed", `Cannot call the server: ${why}`);
}
