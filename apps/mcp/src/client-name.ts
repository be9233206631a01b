import { CLIENT_NAME_CHARS_MAX } from "./limits.ts";
import { VERSION } from "./version.ts";

/**
 * What the service records of who called: this program, and what its client calls itself. The client's words are its
 * own claim: they stand in brackets, and none of them ends those.
 */
export function clientName(client: { readonly name: string; readonly version: string } | undefined): string {
  const own = `capsem-mcp/${VERSION}`;
  const said = [client?.name, client?.version].map(plain).filter((word) => word !== "");
  const room = CLIENT_NAME_CHARS_MAX - own.length - 3;
  const words = said.join(" ").slice(0, room).trim();
  return words === "" ? own : `${own} (${words})`;
}

/** Printable ASCII without brackets. */
function plain(text: unknown): string {
  if (typeof text !== "string") return "";
  return text
    .slice(0, CLIENT_NAME_CHARS_MAX)
    .replace(/[^ -~]+|[()]/g, "")
    .replace(/ +/g, " ")
    .trim();
}
