import { Failure, within } from "@capsem/base";
import { notificationText } from "@capsem/mcp-protocol";
import { UPSTREAM_LIMITS } from "../limits.ts";
import type { Inbox } from "./inbox.ts";
import type { OpenCall } from "./open-call.ts";
import type { Session } from "./session.ts";

/** Tells a server the news that a call is, and keeps the call open for what it asks about them. */
export async function performNews(
  call: OpenCall,
  inbox: Inbox,
  session: Pick<Session, "tell">,
): Promise<void> {
  // Nobody can take them back.
  inbox.add(call, () => undefined);
  try {
    // Who has left does not wait until the server has taken it.
    await Promise.race([session.tell(notificationText(call.request.method)), call.outcome]);
    await within(call.quiet, UPSTREAM_LIMITS.newsWaitMs, undefined, call.signal);
  } catch (thrown) {
    if (!(thrown instanceof Failure)) throw thrown;
    // It has asked, and waits for an answer: the call's own time says how long.
    if (call.isAsking && !call.isOver) await Promise.race([call.quiet, call.outcome.catch(() => undefined)]);
  } finally {
    inbox.remove(call);
  }
  call.settle({ kind: "result", text: "{}" });
}
