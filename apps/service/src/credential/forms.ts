import { CREDENTIAL_LIMITS } from "./limits.ts";

const { formCharactersMin, pieceCharactersMax } = CREDENTIAL_LIMITS;

/** Says what a key file holds, and is in every one of them. */
const ARMOUR = /^-----(BEGIN|END) [A-Z0-9 ]+-----$/;

/**
 * Every text that stands for the secret where something is stored: as it is, its lines, and each of these as JSON, URLs,
 * base64 and hex write it. None has more than `pieceCharactersMax` characters: of a longer one, pieces that cover it.
 */
export function formsOf(secret: string): ReadonlySet<string> {
  const forms = new Set<string>();
  for (const text of [secret, secret.trim(), ...linesOf(secret)]) {
    for (const form of encodingsOf(text)) {
      for (const piece of piecesOf(form)) {
        if (piece.trim().length >= formCharactersMin) forms.add(piece);
      }
    }
  }
  return forms;
}

function linesOf(secret: string): string[] {
  return secret
    .split(/\r\n|\r|\n/)
    .map((line) => line.trim())
    .filter((line) => line.length >= formCharactersMin && !ARMOUR.test(line));
}

function* encodingsOf(text: string): Generator<string> {
  yield text;
  yield* jsonForms(text);
  yield* percentForms(text);
  const bytes = Buffer.from(text);
  yield* base64Forms(bytes);
  const hex = bytes.toString("hex");
  yield hex;
  yield hex.toUpperCase();
}

/** JSON writers differ in what they escape beyond what they must, and in how. */
function* jsonForms(text: string): Generator<string> {
  const plain = JSON.stringify(text).slice(1, -1);
  const ascii = escaped(plain, /[^ -~]/g);
  const html = escaped(plain, /[<>&\u2028\u2029]/g);
  for (const form of [plain, ascii, html, escaped(ascii, /[<>&]/g)]) {
    yield form;
    yield form.replaceAll("/", "\\/");
    yield upperEscapes(form);
    // A JSON text in a JSON text.
    yield JSON.stringify(form).slice(1, -1);
  }
}

function escaped(json: string, characters: RegExp): string {
  return json.replace(characters, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

function upperEscapes(json: string): string {
  return json.replace(/\\u[0-9a-f]{4}/g, (word) => `\\u${word.slice(2).toUpperCase()}`);
}

function* percentForms(text: string): Generator<string> {
  const component = encodeURIComponent(text);
  const strict = component.replace(/[!'()*]/g, (sign) => `%${sign.charCodeAt(0).toString(16).toUpperCase()}`);
  const whole = Buffer.from(text).toString("hex").toUpperCase().replace(/../g, "%$&");
  const form = new URLSearchParams([["", text]]).toString().slice(1);
  for (const upper of [component, strict, encodeURI(text), form, strict.replaceAll("%20", "+"), whole]) {
    yield upper;
    yield upper.replace(/%[0-9A-F]{2}/g, (word) => word.toLowerCase());
  }
}

/**
 * What stands in a base64 text whatever stands before and after the secret: three bytes are four characters, so that
 * there are three ways to lie, and the characters at its ends may hold bits of its neighbours.
 */
function* base64Forms(bytes: Buffer): Generator<string> {
  for (const before of [0, 1, 2]) {
    const encoded = Buffer.concat([Buffer.alloc(before), bytes]).toString("base64");
    const first = Math.ceil((before * 8) / 6);
    const last = Math.floor(((before + bytes.length) * 8) / 6);
    const own = encoded.slice(first, last);
    yield own;
    yield own.replaceAll("+", "-").replaceAll("/", "_");
    yield* base64InOthers(own);
  }
}

/** Base64 has two signs that writers of JSON and of URLs may escape in turn. */
function* base64InOthers(own: string): Generator<string> {
  yield own.replaceAll("/", "\\/");
  const percent = encodeURIComponent(own);
  yield percent;
  yield percent.replace(/%2[BF]/g, (word) => word.toLowerCase());
  yield own.replaceAll("+", "\\u002B");
  yield own.replaceAll("+", "\\u002b");
}

/** Each begins within the one before it, so that where that one is known to end, this one is known to have begun. */
function* piecesOf(form: string): Generator<string> {
  for (let at = 0; at + pieceCharactersMax < form.length; at += pieceCharactersMax - formCharactersMin) {
    yield form.slice(at, at + pieceCharactersMax);
  }
  yield form.slice(-pieceCharactersMax);
}
