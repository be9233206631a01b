/** What servers are told of their client. */
export const VERSION = "0.1.0";
export const CLIENT_INFO = JSON.stringify({ name: "capsem", title: "Capsem", version: VERSION });
