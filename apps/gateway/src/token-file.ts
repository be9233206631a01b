import { randomBytes } from "node:crypto";
import {
  closeSync,
  constants,
  fsyncSync,
  linkSync,
  lstatSync,
  openSync,
  renameSync,
  rmSync,
  writeSync,
} from "node:fs";
import { join } from "node:path";
import { Failure } from "@capsem/base";
import { AUTH_LIMITS } from "./limits.ts";

const ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

export function tokenPath(runFolder: string): string {
  return join(runFolder, "gateway.token");
}

/**
 * Makes a token file where there is none. Two at once make one: the second finds the first's. One that another user put
 * there is refused: its maker knows it.
 */
export function ensureToken(runFolder: string): "created" | "kept" {
  return writeFresh(runFolder, (temporary, path) => {
    try {
      // A link fails where a file is; a rename would replace the token that somebody already uses.
      linkSync(temporary, path);
      return "created";
    } catch (thrown) {
      if (codeOf(thrown) !== "EEXIST") throw thrown;
      checkOwner(path);
      return "kept";
    }
  });
}

/** Replaces the token file as a whole. Running gateways see that theirs is gone and refuse the old token. */
export function rotateToken(runFolder: string): void {
  writeFresh(runFolder, (temporary, path) => renameSync(temporary, path));
}

function writeFresh<T>(runFolder: string, publish: (temporary: string, path: string) => T): T {
  const path = tokenPath(runFolder);
  const temporary = `${path}.${randomBytes(8).toString("hex")}.tmp`;
  const fd = openSync(temporary, constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL, 0o600);
  try {
    try {
      writeSync(fd, `${newToken()}\n`);
      fsyncSync(fd);
    } finally {
      closeSync(fd);
    }
    return publish(temporary, path);
  } finally {
    rmSync(temporary, { force: true });
  }
}

function checkOwner(path: string): void {
  const { uid } = lstatSync(path);
  const own = process.getuid?.() ?? -1;
  if (uid === own) return;
  const state = `it belongs to user ${uid}, and we are user ${own}; "capsem gateway rotate" makes another`;
  throw new Failure("token_unusable", `Cannot use ${JSON.stringify(path)}: ${state}`);
}

/** 62 does not divide 256: bytes beyond the last whole multiple are thrown away, so that all are equally likely. */
function newToken(): string {
  let token = "";
  while (token.length < AUTH_LIMITS.tokenCharacters) {
    for (const byte of randomBytes(AUTH_LIMITS.tokenCharacters)) {
      if (byte < 248 && token.length < AUTH_LIMITS.tokenCharacters) token += ALPHABET[byte % 62];
    }
  }
  return token;
}

function codeOf(thrown: unknown): unknown {
  return thrown instanceof Error && "code" in thrown ? thrown.code : undefined;
}
