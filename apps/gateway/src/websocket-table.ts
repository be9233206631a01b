import type { RouteName } from "@capsem/api";

/** The subprotocol of each route that is a WebSocket. */
export const SUBPROTOCOLS: Readonly<Partial<Record<RouteName, string>>> = {
  stream: "capsem.stream.v1",
  events: "capsem.events.v1",
};

/** Offered beside the real one by a page, which cannot set headers on a WebSocket. Never selected. */
export const TOKEN_SUBPROTOCOL = "capsem.token.";
