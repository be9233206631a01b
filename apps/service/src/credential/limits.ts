/** Bounds of credentials and of their redaction, with their reasons. */
const KIB = 1024;

export const CREDENTIAL_LIMITS = {
  /** A person's keys; each is looked for in every text that is stored. */
  countMax: 64,
  /** Of all secrets together: what is looked for grows with them, and is built anew at each change. */
  secretCharactersTotalMax: 64 * KIB,
  /** A shorter text is found by chance, and would make logs unreadable. */
  formCharactersMin: 8,
  /** A longer form is looked for in pieces of so many characters: half a key is a leak too. */
  pieceCharactersMax: 64,
  /** Of a text that was cut, the end that may be the beginning of a secret. */
  cutTailCharactersMin: 4,
  /** Whose lines are followed, of one process: an owner names three. Lines of more are redacted one by one. */
  followedSourcesMax: 8,
  /** A marker beside a secret may make another one; more rounds than this are somebody's game. */
  roundsMax: 8,
  /** Deeper values are replaced as a whole: they must not end the process that stores them. */
  jsonDepthMax: 256,
  /** The installation's key of references, in hex. */
  keyFileBytesMax: 256,
  hostsMax: 64,
} as const;
