/**
 * What follows from a thing alone, found once and kept as long as the thing. Conditions stay compiled from one reading
 * of the rules to the next, and nearly all of them are what they were.
 */
export function onceEach<K extends object, T>(of: (thing: K) => T): (thing: K) => T {
  const known = new WeakMap<K, { readonly found: T }>();
  return (thing) => {
    const before = known.get(thing);
    if (before !== undefined) return before.found;
    const found = of(thing);
    known.set(thing, { found });
    return found;
  };
}
