import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { matchRoute, ROUTES } from "@capsem/api";
import { messageOf } from "@capsem/base";
import { expect, test } from "vitest";
import { errorBody } from "../http/error-body.ts";
import { parseBody } from "../http/parse-call.ts";
import { actContextOf } from "../testing/act-context.ts";
import { AskRig } from "../testing/ask-rig.ts";
import { type AskRouteParts, askRoutes } from "./ask-routes.ts";

const context = actContextOf();
const noCredentials = {} as AskRouteParts["credentials"];

/** As the server calls them, which the types of one route alone cannot say. */
const callOf = (parts: object) => ({ context, ...parts }) as never;

test("what waits is listed and answered, each in the shape of its route", async () => {
  const folder = mkdtempSync(join(tmpdir(), "capsem-ask-routes-"));
  const rig = new AskRig(folder);
  const book = await rig.open();
  const routes = askRoutes({ asks: book, credentials: noCredentials, servers: () => new Map() });
  const held = book.hold(rig.asked(), context);
  const { value } = await routes.asks(callOf({ query: { state: "pending" } }));
  const { asks } = ROUTES.asks.result.parse(value);
  const id = asks[0]?.id ?? "";
  const answer = await routes.askResolve(callOf({ params: { id }, body: { approve: true } }));
  expect(ROUTES.askResolve.result.parse(answer.value)).toMatchObject({ id, state: "approved" });
  expect(await held).toMatchObject({ state: "approved" });
  expect((await routes.asks(callOf({ query: { state: "pending" } }))).value).toEqual({ asks: [] });
  await book.close();
  rmSync(folder, { recursive: true, force: true });
});

test("a credential that is forgotten names the servers that send it, whoever declared them", async () => {
  const ref = `credential:blake3:${"ab".repeat(32)}`;
  const other = ref.replaceAll("ab", "cd");
  const sending = (value: string) => ({ headers: new Map([["Authorization", `Bearer ${value}`]]) });
  const servers = new Map([
    ["corp", sending(ref)],
    ["mine", sending(ref)],
    ["other", sending(other)],
    ["open", { headers: new Map<string, string>() }],
  ]);
  const credentials = { delete: async () => undefined } as unknown as AskRouteParts["credentials"];
  const asks = {} as AskRouteParts["asks"];
  const { value } = await askRoutes({ asks, credentials, servers: () => servers }).credentialDelete(
    callOf({ params: { ref } }),
  );
  expect(ROUTES.credentialDelete.result.parse(value)).toEqual({ ok: true, servers: ["corp", "mine"] });
});

test.each([
  { what: "too short", body: { name: "a", secret: "s3cret!", hosts: [] } },
  { what: "of a wrong shape", body: { name: "a", secret: ["s3cret!"], hosts: [] } },
  { what: "in a wrong place", body: { name: "s3cret!", secret: "long enough", hosts: [] } },
  { what: "beside more", body: { name: "a", secret: "s3cret!-long", hosts: [], keep: "s3cret!" } },
])("the refusal of a secret that is $what says nothing of it", ({ body }) => {
  const match = matchRoute("POST", "/credentials/inject");
  if (match === null) throw new Error("no such route");
  let thrown: unknown;
  try {
    parseBody(match, body);
  } catch (caught) {
    thrown = caught;
  }
  expect(JSON.stringify([errorBody(thrown), messageOf(thrown)])).not.toContain("s3cret!");
  expect(errorBody(thrown).error).toMatchObject({ kind: "invalid_input", status: 400 });
});
