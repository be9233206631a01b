import { expect, test } from "vitest";
import { dialling, readAll } from "./testing/dialling.ts";
import { httpServer } from "./testing/servers.ts";

test("a key that a server writes otherwise comes back where only the key is looked for, and not where its forms are", async () => {
  const secret = "sk-canary-0123456789";
  const encoded = Buffer.from(`Bearer ${secret}`).toString("base64");
  const server = await httpServer((request, response) => {
    const said = Buffer.from(String(request.headers.authorization)).toString("base64");
    response.setHeader("x-echo", said);
    response.write(said.slice(0, 15));
    setTimeout(() => response.end(said.slice(15)), 30);
  });
  const answered = async (secrets: string[]) => {
    const { fetch } = dialling({
      admit: () => ({ headers: [["Authorization", `Bearer ${secret}`]], secrets }),
    });
    const { head, body } = await fetch(server.url);
    const echo = head.headers.find(([name]) => name === "x-echo")?.[1] ?? "";
    return [echo, await readAll(body)];
  };
  expect(await answered([secret])).toEqual([encoded, encoded]);
  // What is the key's alone, whatever its neighbours are.
  const form = encoded.slice(10, 36);
  const blanked = encoded.replace(form, "*".repeat(form.length));
  expect(await answered([secret, form])).toEqual([blanked, blanked]);
});
