/** A page's script: it has what browsers have and nothing of Node, and is run as such by a test. */
import { createClient, sh } from "../index.ts";

export async function page(url: string, token: string): Promise<unknown[]> {
  const client = createClient({ url, token });
  const events = client.events();
  const hello = await events.next();
  const vm = await client.create({ memory_gib: 0.5 });
  const told = await events.next();
  await events.return(undefined);
  await vm.fs.writeFile("a/../name with space", "world");
  const job = vm.stream({ command: sh`cat ${"name with space"} -; exit 3`, stdin: true });
  await job.write("!\n");
  await job.closeStdin();
  const { stdout, exit_code } = await job.output();
  const large = await vm.stream("head -c 5000000 /dev/zero").output();
  const failure = await vm.fs.readFile("none").catch((thrown: { code: string }) => thrown.code);
  const missing = client.vm("vm_aaaaaaaaaaaaaaaa").stream("true").output();
  const refusal = await missing.catch((thrown: { kind: string }) => thrown.kind);
  await vm.delete();
  return [hello.value?.type, told.value?.type, stdout, exit_code, large.stdout.length, failure, refusal];
}
