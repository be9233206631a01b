import { closeSync, constants, openSync } from "node:fs";
import { connect, type Socket } from "node:net";
import { basename, dirname } from "node:path";
import { CapsemError } from "./error.ts";
import { SOCKET_PATH_BYTES_MAX } from "./limits.ts";

/**
 * Connects to a Unix socket. A path over the limit would be cut silently and reach another socket or none, so it
 * is named through a descriptor of its folder, which is open only until the connection stands.
 */
export function connectUnix(path: string): Socket {
  if (Buffer.byteLength(path) <= SOCKET_PATH_BYTES_MAX) return connect({ path });
  if (process.platform !== "linux")
    throw new CapsemError(
      "invalid_input",
      `Cannot connect: the socket's path is over ${SOCKET_PATH_BYTES_MAX} bytes`,
    );
  const folder = openFolder(dirname(path));
  const socket = connect({ path: `/proc/self/fd/${folder}/${basename(path)}` });
  let open = true;
  const close = () => {
    if (open) closeSync(folder);
    open = false;
  };
  socket.once("connect", close).once("close", close);
  return socket;
}

function openFolder(folder: string): number {
  try {
    return openSync(folder, constants.O_RDONLY | constants.O_DIRECTORY);
  } catch (cause) {
    throw new CapsemError("unavailable", "Cannot reach service: its folder is missing or closed to us", {
      cause,
    });
  }
}
