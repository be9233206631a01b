/* For tests alone: each connection to the socket PATH goes on to the abstract socket of the traffic role, which Node
 * cannot name. An end, and a full close, pass through as they are. Its stdin's end ends it. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define NAME "\0capsem/traffic"

struct way {
  int from, to;
  char bytes[65536];
  size_t at, length;
  int is_over;
};

static void step(struct way *way) {
  if (way->length == 0 && !way->is_over) {
    ssize_t got = recv(way->from, way->bytes, sizeof way->bytes, MSG_DONTWAIT);
    if (got == 0) {
      way->is_over = 1;
      shutdown(way->to, SHUT_WR);
    } else if (got > 0) {
      way->at = 0;
      way->length = (size_t)got;
    } else if (errno != EAGAIN) {
      _exit(0);
    }
  }
  if (way->length > 0) {
    ssize_t sent = send(way->to, way->bytes + way->at, way->length, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN)
      _exit(0);
    way->at += sent > 0 ? (size_t)sent : 0;
    way->length -= sent > 0 ? (size_t)sent : 0;
  }
}

static void bridge(int near) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  memcpy(address.sun_path, NAME, sizeof NAME - 1);
  int far = socket(AF_UNIX, SOCK_STREAM, 0);
  socklen_t length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + sizeof NAME - 1);
  if (connect(far, (struct sockaddr *)&address, length) != 0)
    _exit(1);
  static struct way out, in;
  out.from = in.to = near;
  out.to = in.from = far;
  while (!out.is_over || !in.is_over) {
    struct pollfd fds[] = {
        {.fd = near, .events = (short)((out.length || out.is_over ? 0 : POLLIN) | (in.length ? POLLOUT : 0))},
        {.fd = far, .events = (short)((in.length || in.is_over ? 0 : POLLIN) | (out.length ? POLLOUT : 0))},
    };
    poll(fds, 2, -1);
    step(&out);
    step(&in);
    if (((fds[0].revents | fds[1].revents) & (POLLHUP | POLLERR)) && out.length == 0 && out.is_over)
      break;
  }
  _exit(0);
}

int main(int argc, char **argv) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  if (argc != 2 || strlen(argv[1]) >= sizeof address.sun_path)
    return 2;
  strcpy(address.sun_path, argv[1]);
  signal(SIGCHLD, SIG_IGN);
  int listener = socket(AF_UNIX, SOCK_STREAM, 0);
  if (bind(listener, (struct sockaddr *)&address, sizeof address) != 0 || listen(listener, 256) != 0)
    return 1;
  if (write(1, "ready\n", 6) != 6)
    return 1;
  for (;;) {
    struct pollfd fds[] = {{.fd = listener, .events = POLLIN}, {.fd = 0, .events = POLLIN}};
    poll(fds, 2, -1);
    if (fds[1].revents != 0)
      return 0;
    int near = accept(listener, NULL, NULL);
    if (near >= 0 && fork() == 0) {
      close(listener);
      prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
      bridge(near);
    }
    close(near);
  }
}
