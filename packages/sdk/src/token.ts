import { CapsemError } from "./error.ts";

/** The gateway's token, or how to get it: asked at the first call, and again when the gateway refused what it gave. */
export type Token = string | (() => string | Promise<string>);

export interface Tokens {
  current(): Promise<string>;
  /** A token other than the refused one, or null when there is none. */
  renew(refused: string): Promise<string | null>;
}

export function createTokens(token: Token): Tokens {
  const read = async () => checkToken(await (typeof token === "string" ? token : token()));
  let known: Promise<string> | null = null;
  const current = () => {
    if (known !== null) return known;
    const reading = read();
    known = reading;
    // A failed read is not remembered: the file may come into being.
    reading.catch(() => {
      if (known === reading) known = null;
    });
    return reading;
  };
  return {
    current,
    renew: async (refused) => {
      // Somebody else may have renewed it while this call was under way.
      if ((await current()) === refused) known = null;
      const renewed = await current();
      return renewed === refused ? null : renewed;
    },
  };
}

/** It becomes part of a header and of a subprotocol's name: nothing but letters and digits may be in it. */
function checkToken(token: string): string {
  if (/^[A-Za-z0-9]{1,256}$/.test(token)) return token;
  throw new CapsemError("unauthorized", "Cannot use the gateway's token: it is not letters and digits alone");
}
