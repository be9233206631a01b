/** Every bound of the package. What is refused or cut because of one names it. */
export const POLICY_LIMITS = {
  /** A hand-written file is a few KiB; 1,000 rules are about 150 KiB. */
  fileBytesMax: 262_144,
  /** The rest of a broken file says nothing new. */
  faultsMax: 50,
  rulesMax: 2_000,
  /** Conditions that are kept compiled, in force or not: those of two full files. */
  compiledMax: 4_096,
  nameCharsMax: 64,
  reasonCharsMax: 512,

  /** An expression that is longer is a program, and nobody reviews it. */
  expressionCharsMax: 4_096,
  expressionNodesMax: 1_000,
  expressionDepthMax: 32,
  /** Two loops inside each other are 65,536 steps at the list bound; three would be 16 million. */
  loopDepthMax: 2,
  /** Steps of about 20 ns in an event of the largest values that the bounds below admit: about 20 ms. */
  costMax: 1_000_000,
  patternCharsMax: 1_024,
  /** Instructions of a compiled pattern. RE2 is linear in the text, times this number in the worst case. */
  patternProgramMax: 128,
  /**
   * About the instructions of all patterns of one rule, before anything compiles them: at most 10 ms of work. What is
   * longer than `patternProgramMax` when compiled was mostly meant to be shorter, and gets a better reason.
   */
  patternSizeMax: 2_048,
  /** The same of all rules of one author: 2,000 patterns of 32 instructions. At most 0.3 s and 100 MB. */
  patternSizesMax: 65_536,
  /** Steps of one decision, of about 10 ns: 0.2 s. A usual pattern takes one or two for a character. */
  decisionStepsMax: 16_000_000,
  /** Comparisons of two parts of conditions, for all rules that are linted: at most 1 s, in slices. */
  lintStepsMax: 1_000_000,
  /** Addresses or domains in one `cidr` or `host_in`. */
  constantsMax: 256,

  /** `content`, `stdout` and bodies: cut here, with the root's `truncated` set. */
  bodyBytesMax: 65_536,
  /** Names, paths, queries: refused beyond it, because a rule that reads a part of a name judges another name. */
  textBytesMax: 16_384,
  hostCharsMax: 253,
  /** As it is written: each character as `%41`, brackets, a dot at the end. Longer is no host in any spelling. */
  hostTextCharsMax: 1_024,
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

  /** Tool servers of both files together: a list of tools that is longer helps no model. */
  serversMax: 64,
  serverNameCharsMax: 32,
  serverUrlCharsMax: 2_048,
  serverHeadersMax: 32,
  headerNameCharsMax: 64,
  headerValueCharsMax: 4_096,
  grantsMax: 16,
  /** Seconds of one call: what the protocol gives a call at most. */
  serverTimeoutSecsMax: 300,
} as const;
