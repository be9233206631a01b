// What somebody who has taken a process over would try, in the bare words of the kernel. Built and run by tests alone.
//
//   attacker FILTER ACT...    FILTER: a file with a seccomp program that it puts on itself first, or "-"
//
// Each act is said with how it ended, "done" or the errno's name. Descriptors as in the process that it stands for:
// 3 a listener of our own, 4 one end of a pair, 5 the file LOG, open to append; 6 a socket that is not connected.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#define LISTENER 3
#define PAIR 4
#define LOG 5
#define IDLE 6

static struct sockaddr_in loopback(const char *variable) {
  const char *port = getenv(variable);
  return (struct sockaddr_in){.sin_family = AF_INET,
                              .sin_port = htons((uint16_t)(port == NULL ? 0 : atoi(port))),
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static void place(int fd, int number) {
  if (fd != number && (dup2(fd, number) < 0 || close(fd) < 0)) exit(70);
}

// Before the filter: what the process that this one stands for was given.
static void hold(void) {
  const struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  if (listener < 0 || bind(listener, (const struct sockaddr *)&any, sizeof any) < 0 || listen(listener, 1) < 0) exit(71);
  place(listener, LISTENER);
  const int idle = socket(AF_INET, SOCK_STREAM, 0);
  if (idle < 0) exit(79);
  place(idle, IDLE);
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) < 0) exit(72);
  place(pair[0], PAIR);
  const char *path = getenv("LOG");
  if (path == NULL) return;
  const int log = open(path, O_WRONLY | O_APPEND);
  if (log < 0) exit(73);
  place(log, LOG);
}

static void put_on(const char *path) {
  static struct sock_filter steps[4096];
  const int fd = open(path, O_RDONLY);
  const ssize_t size = fd < 0 ? -1 : read(fd, steps, sizeof steps);
  if (size <= 0) exit(74);
  close(fd);
  const struct sock_fprog program = {(unsigned short)((size_t)size / sizeof steps[0]), steps};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0) exit(75);
  if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) < 0) exit(76);
}

static int send_fast(int fd) {
  struct sockaddr_in address = loopback("TCP_PORT");
  struct iovec part = {"hello", 5};
  const struct msghdr message = {
      .msg_name = &address, .msg_namelen = sizeof address, .msg_iov = &part, .msg_iovlen = 1};
  return sendmsg(fd, &message, MSG_FASTOPEN | MSG_NOSIGNAL) < 0 ? -1 : 0;
}

static int dial_by_sending(void) { return send_fast(IDLE); }

// The listener becomes a socket that is not connected; sending on it connects it. Newer kernels refuse that (EINVAL).
static int dial_by_listener(void) {
  if (shutdown(LISTENER, SHUT_RD) < 0) return -1;
  return send_fast(LISTENER);
}

static int dial_by_path(void) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  const char *path = getenv("UNIX_SOCKET");
  snprintf(address.sun_path, sizeof address.sun_path, "%s", path == NULL ? "" : path);
  const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  return fd < 0 ? -1 : connect(fd, (const struct sockaddr *)&address, sizeof address);
}

static int datagram(void) {
  const struct sockaddr_in address = loopback("UDP_PORT");
  const int fd = socket(AF_INET, SOCK_DGRAM, 0);
  if (fd < 0) return -1;
  return sendto(fd, "hello", 5, 0, (const struct sockaddr *)&address, sizeof address) < 0 ? -1 : 0;
}

static int overwrite_log(void) {
  if (fcntl(LOG, F_SETFL, 0) < 0) return -1;
  if (lseek(LOG, 0, SEEK_SET) < 0) return -1;
  return write(LOG, "forged", 6) == 6 ? 0 : -1;
}

static int append_log(void) { return write(LOG, "more\n", 5) == 5 ? 0 : -1; }

static int change_limits(void) {
  struct rlimit held;
  if (syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, NULL, &held) < 0) return -1;
  // The same again: a change that any process may make.
  return (int)syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, &held, NULL);
}

static int read_limits(void) {
  struct rlimit held;
  return (int)syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, NULL, &held);
}

static int survive_parent(void) { return prctl(PR_SET_PDEATHSIG, 0, 0, 0, 0); }
static int signal_parent(void) { return kill(getppid(), 0); }
static int signal_thread_of_parent(void) { return (int)syscall(SYS_tgkill, getppid(), getppid(), 0); }
static int signal_own_thread(void) { return (int)syscall(SYS_tgkill, getpid(), gettid(), 0); }
static int own_signals(void) { return fcntl(PAIR, F_SETOWN, getppid()); }

static const struct {
  const char *name;
  int (*act)(void);
} ACTS[] = {
    {"dial by listener", dial_by_listener},
    {"dial by sending", dial_by_sending},
    {"dial by path", dial_by_path},
    {"datagram", datagram},
    {"overwrite log", overwrite_log},
    {"append log", append_log},
    {"change limits", change_limits},
    {"read limits", read_limits},
    {"survive parent", survive_parent},
    {"signal parent", signal_parent},
    {"signal thread of parent", signal_thread_of_parent},
    {"signal own thread", signal_own_thread},
    {"signals of a descriptor", own_signals},
};

int main(int count, char **words) {
  if (count < 2) return 77;
  if (strcmp(words[1], "-") != 0) {
    hold();
    put_on(words[1]);
  }
  for (int i = 2; i < count; i++) {
    int end = -2;
    for (size_t j = 0; j < sizeof ACTS / sizeof *ACTS; j++)
      if (strcmp(words[i], ACTS[j].name) == 0) end = ACTS[j].act();
    if (end == -2) return 78;
    printf("%s: %s\n", words[i], end < 0 ? strerrorname_np(errno) : "done");
  }
  return 0;
}
