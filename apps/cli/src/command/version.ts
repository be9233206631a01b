import type { Handler } from "../context.ts";
import { VERSION } from "../version.ts";

export const version: Handler = async ({ output, json }) => {
  await (json ? output.json({ version: VERSION }) : output.line(`capsem ${VERSION}`));
  return 0;
};
