/** A promise with its two handles outside. Unobserved rejections are the owner's to avoid: see `ignore`. */
export interface Deferred<T> {
  readonly promise: Promise<T>;
  resolve(value: T): void;
  reject(cause: unknown): void;
}

export function defer<T>(): Deferred<T> {
  let resolve!: (value: T) => void;
  let reject!: (cause: unknown) => void;
  const promise = new Promise<T>((res, rej) => {
    resolve = res;
    reject = rej;
  });
  return { promise, resolve, reject };
}

/** Marks a promise whose rejection is also delivered elsewhere, so that it is not reported as unhandled. */
export function ignore(promise: Promise<unknown>): void {
  promise.then(
    () => undefined,
    () => undefined,
  );
}
