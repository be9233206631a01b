#include "traffic.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define BACKLOG 128
#define HTTP_PORT 80
#define OWN_NETWORK "/proc/self/ns/net"
#define SOCKET_NAME "\0capsem/traffic"

static int listening(int fd, const void *address, socklen_t length) {
  if (fd >= 0 && bind(fd, address, length) == 0 && listen(fd, BACKLOG) == 0)
    return fd;
  int saved = errno;
  if (fd >= 0)
    close(fd);
  errno = saved;
  return -1;
}

static int listen_at_socket(void) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  size_t length = sizeof SOCKET_NAME - 1;
  memcpy(address.sun_path, SOCKET_NAME, length);
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  return listening(fd, &address, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length));
}

static int listen_at_address(void) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(HTTP_PORT), .sin_addr = {htonl(TOOLS_ADDRESS_NUMBER)}};
  return listening(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), &address, sizeof address);
}

/* The workload's, never the agent's own: there the device and the socket would be the agent's. */
static int network_of(int init, struct failure *failure) {
  char path[40];
  struct stat own, theirs;
  snprintf(path, sizeof path, "/proc/%d/ns/net", init);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return fail(failure, "namespace", errno == ENOENT ? ESRCH : errno);
  int err = 0;
  if (fstat(fd, &theirs) != 0 || stat(OWN_NETWORK, &own) != 0)
    err = errno;
  else if (own.st_ino == theirs.st_ino && own.st_dev == theirs.st_dev)
    err = EPERM;
  if (err == 0)
    return fd;
  close(fd);
  return fail(failure, "namespace", err);
}

static int open_theirs(int ours, struct doors *doors, struct failure *failure) {
  if (raise_loopback() != 0)
    return fail(failure, "loopback", errno);
  if ((doors->socket = listen_at_socket()) < 0)
    return fail(failure, "listen", errno);
  if ((doors->connections = open("/proc/thread-self/net/tcp", O_RDONLY | O_CLOEXEC)) < 0)
    return fail(failure, "connections", errno);
  if (refuse_all_but_tcp(TOOLS_ADDRESS_NUMBER) != 0 || make_link(ours) != 0 ||
      raise_link(WORKLOAD_ADDRESS_NUMBER, TOOLS_ADDRESS_NUMBER) != 0)
    return fail(failure, "link", errno);
  return 0;
}

/* In a network of its own the address takes no port from the workload's servers, and no program there can have it while
 * we are away. Nothing else is in it, and it forwards nothing. */
static int open_ours(struct doors *doors, struct failure *failure) {
  if (write_network_setting("ipv4/ip_forward", "0") != 0 || raise_link(TOOLS_ADDRESS_NUMBER, WORKLOAD_ADDRESS_NUMBER) != 0)
    return fail(failure, "link", errno);
  return (doors->address = listen_at_address()) >= 0 ? 0 : fail(failure, "listen", errno);
}

int open_doors(int init, struct doors *doors, struct failure *failure) {
  int theirs = network_of(init, failure), ours = -1, result = -1;
  if (theirs < 0)
    return -1;
  if (unshare(CLONE_NEWNET) != 0 || (ours = open(OWN_NETWORK, O_RDONLY | O_CLOEXEC)) < 0 ||
      setns(theirs, CLONE_NEWNET) != 0)
    fail(failure, "namespace", errno);
  else if (open_theirs(ours, doors, failure) == 0)
    result = setns(ours, CLONE_NEWNET) == 0 ? open_ours(doors, failure) : fail(failure, "namespace", errno);
  close(theirs);
  if (ours >= 0)
    close(ours);
  return result;
}
