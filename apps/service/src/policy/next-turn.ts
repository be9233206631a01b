/** Lets others have their turn: a step of reading rules takes a millisecond or two, and there are several. */
export function nextTurn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

/** Work that comes in slices, with everybody else served between them. */
export async function inTurns<T>(slices: Generator<void, T>): Promise<T> {
  for (;;) {
    const slice = slices.next();
    if (slice.done === true) return slice.value;
    await nextTurn();
  }
}
