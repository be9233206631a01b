/** A tool server in a process of its own, so that it can be killed: `PORT` on argv, its URL on stdout. */
import { startToolServer } from "./mcp-servers.ts";

const server = await startToolServer("legacy", Number(process.argv[2] ?? 0));
process.stdout.write(`${server.url}\n`);
