#include "helper.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#define BUFFER_BYTES 131072 /* twice what one read of the agent takes */

/* A virtio port gives 4 KiB a read. Node makes one read a turn of its event loop; here it is read until it is
 * empty, so that the agent is woken for large pieces. The port stays non-blocking: the agent writes to it. */
static ssize_t fill(int from, char *buffer) {
  size_t length = 0;
  while (length < BUFFER_BYTES) {
    ssize_t got = read(from, buffer + length, BUFFER_BYTES - length);
    if (got > 0) {
      length += (size_t)got;
      continue;
    }
    if (got < 0 && errno == EINTR)
      continue;
    if (got < 0 && errno != EAGAIN)
      return length > 0 ? (ssize_t)length : -1;
    if (got < 0 && length == 0) {
      struct pollfd ready = {.fd = from, .events = POLLIN};
      if (poll(&ready, 1, -1) < 0 && errno != EINTR)
        return -1;
      if (!(ready.revents & POLLIN) && (ready.revents & (POLLHUP | POLLERR | POLLNVAL)))
        return 0;
      continue;
    }
    break;
  }
  return (ssize_t)length;
}

static int drain(int to, const char *buffer, size_t length) {
  while (length > 0) {
    ssize_t written = write(to, buffer, length);
    if (written >= 0) {
      buffer += written;
      length -= (size_t)written;
      continue;
    }
    if (errno == EINTR)
      continue;
    if (errno != EAGAIN)
      return -1;
    struct pollfd room = {.fd = to, .events = POLLOUT};
    if (poll(&room, 1, -1) < 0 && errno != EINTR)
      return -1;
  }
  return 0;
}

int relay_main(int argc, char **argv) {
  static char buffer[BUFFER_BYTES];
  (void)argv;
  if (argc != 2 || die_with_parent(SIGKILL, getppid()) != 0)
    return 2;
  /* Whoever started us made descriptor 0 blocking on the way, for the agent's own writes too. */
  int flags = fcntl(STDIN_FILENO, F_GETFL);
  if (flags < 0 || fcntl(STDIN_FILENO, F_SETFL, flags | O_NONBLOCK) != 0)
    return 1;
  for (;;) {
    ssize_t length = fill(STDIN_FILENO, buffer);
    if (length <= 0)
      return length == 0 ? 0 : 1;
    if (drain(STDOUT_FILENO, buffer, (size_t)length) != 0)
      return 1;
  }
}
