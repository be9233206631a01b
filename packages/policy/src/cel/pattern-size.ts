/**
 * How large a pattern is before anything compiles it: about its instructions, with every repetition written out, and
 * the work that its character classes make. A compiler of patterns writes repetitions out before it counts them, so
 * that a few hundred characters cost it seconds and hundreds of MB. A unit stands for 5 µs of compiling at most.
 * What is no valid pattern has some size too; the compiler says what is wrong with it.
 */
export function patternSize(source: string): number {
  return new PatternReader(source).read();
}

/** A table of Unicode has up to some 700 ranges. */
const UNICODE_CLASS = 64;
/** Without regard to case every character of a range is looked up, up to the last one that has another case. */
const FOLDED_PER_UNIT = 64;
const FOLDED_LAST = 0x1e943;

/** One group that is open: what is closed of it, and its last part, which a repetition may follow. */
interface Group {
  sum: number;
  last: number;
}

class PatternReader {
  readonly #source: string;
  readonly #isFolded: boolean;
  #at = 0;
  /** Of classes, which a repetition does not copy. */
  #classes = 0;

  constructor(source: string) {
    this.#source = source;
    // A flag counts for the whole pattern: where it begins to hold is the compiler's to know.
    this.#isFolded = /\(\?[A-Za-z]*i/.test(source);
  }

  read(): number {
    const groups: Group[] = [{ sum: 0, last: 0 }];
    while (this.#at < this.#source.length) {
      const group = groups[groups.length - 1] as Group;
      if (this.#takes(/\(\?[A-Za-z]*(?:-[A-Za-z]+)?\)/y) !== undefined) continue;
      if (this.#takes(/\((?:\?(?:P?<[^>]{0,1024}>|[A-Za-z]*(?:-[A-Za-z]+)?:))?/y) !== undefined) {
        groups.push({ sum: 0, last: 0 });
      } else if (this.#takes(/\)/y) !== undefined) {
        if (groups.length > 1) groups.pop();
        // What is empty is an instruction as well.
        const inner = Math.max(1, group.sum + group.last);
        this.#part(groups[groups.length - 1] as Group, inner + 2);
      } else if (this.#takes(/\|/y) !== undefined) this.#part(group, 2);
      else if (this.#repetition(group)) continue;
      else this.#part(group, this.#atom());
    }
    return groups.reduce((sum, group) => sum + group.sum + group.last, this.#classes);
  }

  /** Moves past what stands here, if it does. */
  #takes(pattern: RegExp): string | undefined {
    pattern.lastIndex = this.#at;
    const found = pattern.exec(this.#source)?.[0];
    if (found !== undefined) this.#at += found.length;
    return found;
  }

  #part(group: Group, size: number): void {
    group.sum += group.last;
    group.last = size;
  }

  #repetition(group: Group): boolean {
    if (this.#takes(/[*+?]/y) !== undefined) {
      group.last += 1;
      return true;
    }
    const found = this.#takes(/\{\d{1,4}(?:,\d{0,4})?\}/y);
    if (found === undefined) return false;
    const [least = 0, most] = found.slice(1, -1).split(",").map(Number);
    // {n} n times, {n,} once more, {n,m} m times with a branch before each that may be left out.
    const times = most === undefined ? least : found.endsWith(",}") ? least + 1 : most;
    group.last = Math.max(1, times) * (group.last + (most === undefined ? 0 : 1));
    return true;
  }

  #atom(): number {
    if (this.#takes(/\[/y) !== undefined) {
      this.#charClass();
      return 1;
    }
    const quoted = this.#takes(/\\Q[\s\S]*?(?:\\E|$)/y);
    if (quoted !== undefined) return quoted.length;
    this.#character();
    return 1;
  }

  /** From behind the bracket to behind the one that closes it. */
  #charClass(): void {
    this.#takes(/\^?\]?/y);
    let low: number | undefined;
    while (this.#at < this.#source.length && this.#takes(/\]/y) === undefined) {
      if (this.#takes(/\[:\^?[a-z]{1,16}:\]/y) !== undefined) continue;
      const isRange = low !== undefined && this.#takes(/-(?!\])/y) !== undefined;
      const character = this.#character();
      if (isRange && this.#isFolded) {
        const last = Math.min(character ?? FOLDED_LAST, FOLDED_LAST);
        this.#classes += Math.max(0, Math.ceil((last - (low ?? 0)) / FOLDED_PER_UNIT));
      }
      low = isRange ? undefined : character;
    }
  }

  /** One character with its escape. Undefined for what stands for several. */
  #character(): number | undefined {
    if (this.#takes(/\\[pP](?:\{[^}]{0,64}\}|[\s\S])?/y) !== undefined) {
      this.#classes += UNICODE_CLASS;
      return undefined;
    }
    const hex = this.#takes(/\\x(?:\{[0-9A-Fa-f]{1,8}\}|[0-9A-Fa-f]{2})/y);
    if (hex !== undefined) return Number.parseInt(hex.replace(/^\\x\{?/, ""), 16);
    const octal = this.#takes(/\\[0-7]{1,3}/y);
    if (octal !== undefined) return Number.parseInt(octal.slice(1), 8);
    if (this.#takes(/\\[dDsSwWbBAz]/y) !== undefined) return undefined;
    this.#takes(/\\(?=[\s\S])/y);
    const character = this.#source.codePointAt(this.#at) ?? 0;
    this.#at += character > 0xffff ? 2 : 1;
    return character;
  }
}
