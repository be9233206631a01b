import {
  createHash,
  createPrivateKey,
  createPublicKey,
  generateKeyPairSync,
  type KeyObject,
  randomBytes,
  sign,
  verify,
} from "node:crypto";
import {
  closeSync,
  constants,
  fstatSync,
  fsyncSync,
  openSync,
  readSync,
  renameSync,
  rmSync,
  writeSync,
} from "node:fs";
import { join } from "node:path";
import { type LedgerHead, signedHeadText } from "@capsem/api";
import { Failure, messageOf } from "@capsem/base";
import { isMissing } from "../home/atomic-file.ts";
import { LEDGER_LIMITS } from "./limits.ts";

/** Signs heads of ledgers, and knows its own signatures again. */
export interface HeadKey {
  /** The public key: SPKI DER in base64. */
  readonly publicKey: string;
  readonly keyId: string;
  sign(ledger: string, head: LedgerHead): string;
  isSigned(ledger: string, head: LedgerHead, signature: string): boolean;
}

export interface ServiceKeys {
  readonly head: HeadKey;
  /** For digests that must give nothing away: 32 bytes. */
  readonly digestKey: Buffer;
}

const DIGEST_KEY_BYTES = 32;
const OTHERS = 0o077;

/**
 * The service's keys, made where there are none yet. `folder` is our own and checked. Throws Failure("key_refused"),
 * with what to do about it, for a file that another could have written or read, or that is no key.
 */
export function openKeys(folder: string, uid: number): ServiceKeys {
  return { head: headKey(openHeadKey(folder, uid)), digestKey: openDigestKey(folder, uid) };
}

function openHeadKey(folder: string, uid: number): KeyObject {
  const path = join(folder, "ledger.key");
  const publicPath = join(folder, "ledger.pub");
  const known = readOwn(publicPath, uid);
  const found = readOwn(path, uid);
  if (found === null) {
    if (known !== null) throw refused(path, "it is gone, and its public half is there", publicPath);
    const { privateKey } = generateKeyPairSync("ed25519");
    // The public half last: found alone it means that the private one was taken away.
    writeOwn(path, pemOf(privateKey));
    writeOwn(publicPath, publicPemOf(privateKey));
    return privateKey;
  }
  const key = parseKey(path, found, publicPath);
  if (known === null) writeOwn(publicPath, publicPemOf(key));
  else if (known !== publicPemOf(key))
    throw refused(path, "its public half beside it is of another key", publicPath);
  return key;
}

function openDigestKey(folder: string, uid: number): Buffer {
  const path = join(folder, "digest.key");
  const found = readOwn(path, uid);
  if (found === null) {
    const key = randomBytes(DIGEST_KEY_BYTES);
    writeOwn(path, `${key.toString("base64")}\n`);
    return key;
  }
  const key = Buffer.from(found, "base64");
  if (key.length !== DIGEST_KEY_BYTES || `${key.toString("base64")}\n` !== found) {
    throw new Failure(
      "key_refused",
      `Cannot use ${JSON.stringify(path)}: it is no key; remove it: pending asks end`,
    );
  }
  return key;
}

function parseKey(path: string, text: string, publicPath: string): KeyObject {
  try {
    const key = createPrivateKey(text);
    if (key.asymmetricKeyType === "ed25519") return key;
  } catch (thrown) {
    throw refused(path, `it is no key (${messageOf(thrown)})`, publicPath);
  }
  throw refused(path, "it is a key of another kind", publicPath);
}

function headKey(key: KeyObject): HeadKey {
  const publicKey = createPublicKey(key);
  const der = publicKey.export({ type: "spki", format: "der" });
  const bytesOf = (ledger: string, head: LedgerHead) => Buffer.from(signedHeadText(ledger, head), "utf8");
  return {
    publicKey: der.toString("base64"),
    keyId: createHash("sha256").update(der).digest("hex").slice(0, 16),
    sign: (ledger, head) => sign(null, bytesOf(ledger, head), key).toString("base64"),
    isSigned: (ledger, head, signature) =>
      verify(null, bytesOf(ledger, head), publicKey, Buffer.from(signature, "base64")),
  };
}

function pemOf(key: KeyObject): string {
  return key.export({ type: "pkcs8", format: "pem" }).toString();
}

function publicPemOf(key: KeyObject): string {
  return createPublicKey(key).export({ type: "spki", format: "pem" }).toString();
}

/** Null where there is none. */
function readOwn(path: string, uid: number): string | null {
  let fd: number;
  try {
    fd = openSync(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  } catch (thrown) {
    if (isMissing(thrown)) return null;
    throw new Failure("key_refused", `Cannot use ${JSON.stringify(path)}: ${messageOf(thrown)}`, {
      cause: thrown,
    });
  }
  try {
    const { uid: owner, mode, nlink, size } = fstatSync(fd);
    const refuse = (state: string) =>
      new Failure("key_refused", `Cannot use ${JSON.stringify(path)}: ${state}`);
    if ((mode & constants.S_IFMT) !== constants.S_IFREG) throw refuse("it is no file");
    if (owner !== uid) throw refuse(`it belongs to user ${owner}, and we are user ${uid}`);
    if ((mode & OTHERS) !== 0)
      throw refuse(`others may use it; "chmod 600" closes it, if nobody has read it`);
    if (nlink > 1) throw refuse("it has another name elsewhere");
    if (size > LEDGER_LIMITS.keyFileBytesMax) throw refuse("it is too large for a key");
    const bytes = Buffer.alloc(LEDGER_LIMITS.keyFileBytesMax);
    return bytes.toString("utf8", 0, readSync(fd, bytes, 0, bytes.length, 0));
  } finally {
    closeSync(fd);
  }
}

/** As a whole or not at all, also when the power goes. */
function writeOwn(path: string, text: string): void {
  const temporary = `${path}.tmp`;
  rmSync(temporary, { force: true });
  const fd = openSync(temporary, constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL, 0o600);
  try {
    writeSync(fd, text);
    fsyncSync(fd);
  } finally {
    closeSync(fd);
  }
  renameSync(temporary, path);
}

function refused(path: string, state: string, publicPath: string): Failure {
  const remedy = `put it back, or move ${JSON.stringify(publicPath)} and it away: a new key is made, and ledgers up to now stay verifiable with the old public half alone`;
  return new Failure("key_refused", `Cannot use ${JSON.stringify(path)}: ${state}; ${remedy}`);
}
