import { echo } from "./echo.ts";
import { fetchHttp } from "./fetch-http.ts";
import { grepHttp } from "./grep-http.ts";
import { httpHeaders } from "./http-headers.ts";
import type { Tool } from "./tool.ts";

/** All tools of the server `local`, as they are listed. */
export const TOOLS: readonly Tool[] = [fetchHttp, grepHttp, httpHeaders, echo];

export const TOOL_OF: ReadonlyMap<string, Tool> = new Map(TOOLS.map((tool) => [tool.definition.name, tool]));
/** Written once. */
export const DEFINITIONS: readonly string[] = TOOLS.map(({ definition }) => JSON.stringify(definition));
