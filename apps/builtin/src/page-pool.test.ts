import { expect, onTestFinished, test, vi } from "vitest";
import { PAGE_LIMITS } from "./limits.ts";
import { PagePool, type PagePoolOptions } from "./page-pool.ts";
import { programText } from "./testing/program.ts";
import { page, startRig, startWeb } from "./testing/rig.ts";

vi.setConfig({ testTimeout: 60_000 });

function pool(options: Partial<PagePoolOptions> = {}): PagePool {
  const made = new PagePool({ program: programText(), ...options });
  onTestFinished(() => made.close());
  return made;
}

const source = (html: string) => ({
  ...{
    body: Buffer.from(html),
    charset: null,
    isHtml: true,
    url: "https://example.com/",
    format: "markdown" as const,
  },
});
const converted = (pages: PagePool, html: string, signal = new AbortController().signal) =>
  pages.run("convert", { source: source(html), offset: 0, charsMax: 1_000 }, signal);
/** Closes a million elements that are not the last one: its parser looks through all that are open, each time. */
const HOSTILE = `${"<b>".repeat(300_000)}${"</i>".repeat(700_000)}`;

test("a page that takes too long is ended, and the next one is converted", async () => {
  const pages = pool({ jobTimeoutMs: 1_500 });
  await expect(converted(pages, HOSTILE)).rejects.toMatchObject({
    kind: expect.stringMatching("timeout|too_large"),
  });
  await vi.waitFor(() => expect(pages.threads).toBe(0));
  expect((await converted(pages, "<p>well</p>")).text).toBe("well");
});

test("a page that needs too much memory is refused, and this process lives on", async () => {
  const pages = pool({ jobTimeoutMs: 60_000, heapMiB: 48 });
  await expect(converted(pages, "<i></i>".repeat(700_000))).rejects.toMatchObject({ kind: "too_large" });
  expect((await converted(pages, "<p>well</p>")).text).toBe("well");
});

test("while pages take all threads an echo is answered as ever", async () => {
  const rig = startRig({ jobTimeoutMs: 3_000 });
  const web = await startWeb({ "/": page("text/html", HOSTILE) });
  const pages = Array.from({ length: PAGE_LIMITS.threadsMax }, () =>
    rig.call("fetch_http", { url: web.url }),
  );
  await vi.waitFor(() => expect(rig.pages.threads).toBe(PAGE_LIMITS.threadsMax), { timeout: 20_000 });
  const tookMs: number[] = [];
  for (let call = 0; call < 200; call += 1) {
    const startedAt = performance.now();
    await rig.call("echo", { text: "here" });
    tookMs.push(performance.now() - startedAt);
  }
  tookMs.sort((left, right) => left - right);
  // Both processors are busy with the pages; what is asked is that nobody waits for one.
  expect(tookMs[100]).toBeLessThan(1_000);
  for (const result of await Promise.all(pages)) expect(result.isError).toBe(true);
});

test("who gives up is told so at once, and its thread goes", async () => {
  const pages = pool();
  const leaving = new AbortController();
  const work = converted(pages, HOSTILE, leaving.signal);
  setTimeout(() => leaving.abort(new Error("given up")), 200);
  await expect(work).rejects.toThrow("given up");
  await vi.waitFor(() => expect(pages.threads).toBe(0));
});

test("a thread serves many, is ended when it has had no work, and at the end", async () => {
  const pages = pool({ idleMs: 300 });
  for (let round = 0; round < 20; round += 1)
    expect((await converted(pages, `<p>${round}</p>`)).text).toBe(`${round}`);
  expect(pages.threads).toBe(1);
  await vi.waitFor(() => expect(pages.threads).toBe(0), { timeout: 20_000 });
  const many = await Promise.all(
    Array.from({ length: 30 }, (_, index) => converted(pages, `<p>${index}</p>`)),
  );
  expect(many.map(({ text }) => text)).toEqual(many.map((_, index) => `${index}`));
  expect(pages.threads).toBeLessThanOrEqual(PAGE_LIMITS.threadsMax);
  await pages.close();
  expect(pages.threads).toBe(0);
});

test("more than may wait are refused at once", async () => {
  const pages = pool();
  const jobs = Array.from({ length: PAGE_LIMITS.threadsMax + PAGE_LIMITS.waitingMax + 3 }, () =>
    converted(pages, "<p>x</p>").then(
      () => "done",
      (thrown: { kind: string }) => thrown.kind,
    ),
  );
  const ends = await Promise.all(jobs);
  expect(ends.filter((end) => end === "upstream_failed")).toHaveLength(3);
  expect(ends.filter((end) => end === "done")).toHaveLength(ends.length - 3);
});

test("a thread whose time without work is over just now gets no page", async () => {
  const idleMs = 20;
  const pages = pool({ idleMs });
  for (let round = 0; round < 3; round += 1) {
    expect((await converted(pages, "<p>well</p>")).text).toBe("well");
    // Of the same length and begun later: it ends right behind the thread's.
    await new Promise((resolve) => setTimeout(resolve, idleMs));
  }
});

test("a pool that is closed ends what waits for a thread, and starts none for it", async () => {
  const pages = pool();
  const jobs = Array.from({ length: PAGE_LIMITS.threadsMax + 2 }, () => converted(pages, HOSTILE));
  const ended = Promise.allSettled(jobs);
  await pages.close();
  expect((await ended).map(({ status }) => status)).toEqual(jobs.map(() => "rejected"));
  expect(pages.threads).toBe(0);
  await expect(converted(pages, "<p>late</p>")).rejects.toMatchObject({ kind: "upstream_failed" });
});
