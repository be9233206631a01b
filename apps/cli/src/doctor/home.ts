import { messageOf } from "@capsem/base";
import { checkHome } from "../own-home.ts";
import type { Powers } from "../powers.ts";
import type { Finding } from "./findings.ts";

/** Nothing starts in a home that another user could change. */
export function homeFolder({ home }: Powers): Finding {
  const name = "home";
  try {
    checkHome(home);
    return { name, state: "good", detail: home, remedy: "" };
  } catch (thrown) {
    const remedy = "Set CAPSEM_HOME to a folder of your own, or remove what is named here";
    return { name, state: "missing", detail: messageOf(thrown), remedy };
  }
}
