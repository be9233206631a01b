/** Every bound of the package. What is refused or cut because of one names it. */
export const POLICY_LIMITS = {
  /** A hand-written file is a few KiB; 1,000 rules are about 150 KiB. */
  fileBytesMax: 262_144,
  /** The rest of a broken file says nothing new. */
  faultsMax: 50,
  rulesMax: 2_000,
  nameCharsMax: 64,
  reasonCharsMax: 512,

  /** An expression that is longer is a program, and nobody reviews it. */
  expressionCharsMax: 4_096,
  expressionNodesMax: 1_000,
  expressionDepthMax: 32,
  /** Two loops inside each other are 65,536 steps at the list bound; three would be 16 million. */
  loopDepthMax: 2,
  /** Steps of about 20 ns in the worst event that the bounds below admit: about 20 ms. */
  costMax: 1_000_000,
  patternCharsMax: 1_024,
  /**
   * Instructions of a compiled pattern. RE2 is linear in the text, times this number in the worst case: a hostile
   * text of 64 KiB and the largest program were measured at 0.8 s, where a usual pattern takes 0.3 ms.
   */
  patternProgramMax: 128,
  /** Addresses or domains in one `cidr` or `host_in`. */
  constantsMax: 256,

  /** `content`, `stdout` and bodies: cut here, with the root's `truncated` set. */
  bodyBytesMax: 65_536,
  /** Names, paths, queries: refused beyond it, because a rule that reads a part of a name judges another name. */
  textBytesMax: 16_384,
  hostCharsMax: 253,
  traceCharsMax: 256,
  /** Items of a list: cut here, with the root's `truncated` set. A map with more entries is refused. */
  itemsMax: 256,
  /** All long texts of one list or map together: cut here, with the root's `truncated` set. */
  listBytesMax: 65_536,
  /** A text this short is never cut, so that a long one before it hides nothing. */
  keptBytes: 1_024,
  jsonDepthMax: 16,
  jsonNodesMax: 4_096,
  labelSourcesMax: 64,

  /** Allow rules that an explanation shows to someone who was refused. */
  hintsMax: 8,
  ruleFilesMax: 32,
} as const;
