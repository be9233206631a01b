// The gateway's parent. It listens for it, starts it confined through capsem-launch, and then grants it, one descriptor
// at a time, the little that it still needs. It parses nothing that a client sent.
//
//   capsem-gatekeeper --listen ADDRESS:PORT --run-dir DIR --log FILE --launcher PATH [LAUNCHER OPTIONS...] -- COMMAND...
//
// The command gets the listener as descriptor 3 and its end of a SEQPACKET pair as 4; /dev/null as its standard
// input, the log as its output. On the pair it asks with two bytes and is answered with three:
//
//     request   u8 verb   u8 number
//     answer    u8 number   u8 status: 0 granted, 1 refused   u8 errno (0 when granted); the descriptor rides along
//
//   C  a fresh connection to DIR/service.sock      T  DIR/gateway.token, for reading
//   L  the log, for appending                      R  "the gateway is ready": said on our standard output
//
// DIR holds, while the gateway lives, gateway.pid (ours) and gateway.port. A lock in it makes the gateway single.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

// Why it ended before the gateway did. The gateway's own codes, the launcher's (90..99) and 128 + signal pass through.
enum step {
  STEP_USAGE = 80,
  STEP_FOLDER = 81,
  STEP_RUNNING = 82, // Another gateway of this folder lives.
  STEP_IN_USE = 83,  // The port is taken.
  STEP_LISTEN = 84,
  STEP_LOG = 85,
  STEP_FILES = 86,
  STEP_START = 87,
};

#define LISTENER_FD 3
#define PAIR_FD 4
// Above every number that the child needs, so that moving one down cannot overwrite another.
#define PARKED_FD 10
#define BACKLOG 511
#define STOP_TIMEOUT_MS 5000
#define LOG_BYTES_MAX (10 * 1024 * 1024)
#define LOG_FILES_KEPT 3
#define LAUNCHER_WORDS_MAX 1024

struct options {
  char *listen, *run_dir, *log, *launcher;
  char **rest; // Launcher options, "--", command.
  int rest_count;
};

struct gateway {
  const char *log;
  pid_t pid;
  int pair; // -1: the gateway closed its end.
  int port;
  bool is_ready;
  bool is_stopping;
  int64_t kill_at_ms;
};

static _Noreturn void fail_because(enum step step, const char *what, const char *why) {
  fprintf(stderr, "capsem-gatekeeper: %s: %s\n", what, why);
  exit(step);
}

static _Noreturn void fail(enum step step, const char *what) {
  const char *name = strerrorname_np(errno);
  fail_because(step, what, name == NULL ? "unknown errno" : name);
}

static int64_t now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

// ---- Options

static void parse_options(struct options *options, int count, char **words) {
  int i = 1;
  // Ours come first; the first word that is not ours is the launcher's.
  for (; i + 1 < count; i += 2) {
    if (strcmp(words[i], "--listen") == 0) options->listen = words[i + 1];
    else if (strcmp(words[i], "--run-dir") == 0) options->run_dir = words[i + 1];
    else if (strcmp(words[i], "--log") == 0) options->log = words[i + 1];
    else if (strcmp(words[i], "--launcher") == 0) options->launcher = words[i + 1];
    else break;
  }
  options->rest = words + i;
  options->rest_count = count - i;
  if (options->listen == NULL) fail_because(STEP_USAGE, "--listen", "missing");
  if (options->run_dir == NULL || options->run_dir[0] != '/') fail_because(STEP_USAGE, "--run-dir", "not an absolute path");
  if (options->log == NULL || options->log[0] != '/') fail_because(STEP_USAGE, "--log", "not an absolute path");
  if (options->launcher == NULL || options->launcher[0] != '/')
    fail_because(STEP_USAGE, "--launcher", "not an absolute path");
  if (options->rest_count < 2) fail_because(STEP_USAGE, "command", "missing");
  if (options->rest_count > LAUNCHER_WORDS_MAX) fail_because(STEP_USAGE, "command", "too many words");
}

// "127.0.0.1:8080" or "[::1]:8080"; port 0 is a free one. Nothing but loopback.
static socklen_t parse_address(char *text, struct sockaddr_storage *address) {
  char *colon = strrchr(text, ':');
  if (colon == NULL) fail_because(STEP_USAGE, "--listen", "not ADDRESS:PORT");
  char *end = NULL;
  errno = 0;
  const unsigned long port = strtoul(colon + 1, &end, 10);
  if (colon[1] < '0' || colon[1] > '9' || *end != '\0' || errno != 0 || port > 65535)
    fail_because(STEP_USAGE, "--listen", "its port is not 0..65535");
  *colon = '\0';
  struct sockaddr_in *v4 = (struct sockaddr_in *)address;
  struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)address;
  if (inet_pton(AF_INET, text, &v4->sin_addr) == 1) {
    if ((ntohl(v4->sin_addr.s_addr) >> 24) != 127) fail_because(STEP_USAGE, "--listen", "not a loopback address");
    v4->sin_family = AF_INET;
    v4->sin_port = htons((uint16_t)port);
    return sizeof *v4;
  }
  const size_t length = strlen(text);
  if (length > 2 && text[0] == '[' && text[length - 1] == ']') {
    text[length - 1] = '\0';
    if (inet_pton(AF_INET6, text + 1, &v6->sin6_addr) == 1 && IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr)) {
      v6->sin6_family = AF_INET6;
      v6->sin6_port = htons((uint16_t)port);
      return sizeof *v6;
    }
  }
  fail_because(STEP_USAGE, "--listen", "not a loopback address");
}

// ---- Set-up

// The run folder becomes ours to stand in: its names stay short, however long its path is.
static void enter_folder(const char *path) {
  if (chdir(path) < 0) fail(STEP_FOLDER, path);
  const int lock = open("gateway.lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (lock < 0) fail(STEP_FOLDER, "gateway.lock");
  if (flock(lock, LOCK_EX | LOCK_NB) == 0) return; // Held until we end, by whatever end.
  if (errno == EWOULDBLOCK) fail_because(STEP_RUNNING, path, "another gateway of this folder runs");
  fail(STEP_FOLDER, "gateway.lock");
}

static int parked(int fd, enum step step) {
  const int high = fcntl(fd, F_DUPFD_CLOEXEC, PARKED_FD);
  if (high < 0) fail(step, "descriptors");
  close(fd);
  return high;
}

static int listen_on(char *text, int *port) {
  struct sockaddr_storage address = {0};
  const socklen_t size = parse_address(text, &address);
  const int fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) fail(STEP_LISTEN, "socket");
  // A restart does not wait for connections that are over.
  if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int)) < 0) fail(STEP_LISTEN, "socket");
  if (bind(fd, (struct sockaddr *)&address, size) < 0 || listen(fd, BACKLOG) < 0) {
    if (errno == EADDRINUSE) fail_because(STEP_IN_USE, "port", "already in use by another program");
    fail(STEP_LISTEN, "port");
  }
  struct sockaddr_storage bound = {0};
  if (getsockname(fd, (struct sockaddr *)&bound, &(socklen_t){sizeof bound}) < 0) fail(STEP_LISTEN, "port");
  *port = bound.ss_family == AF_INET ? ntohs(((struct sockaddr_in *)&bound)->sin_port)
                                     : ntohs(((struct sockaddr_in6 *)&bound)->sin6_port);
  return parked(fd, STEP_LISTEN);
}

// Whole under its name, or not there.
static bool write_file(const char *name, long value) {
  char fresh[64], text[32];
  snprintf(fresh, sizeof fresh, ".%s.%d", name, getpid());
  const int length = snprintf(text, sizeof text, "%ld\n", value);
  unlink(fresh); // Of a namesake that a crash left.
  const int fd = open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0) return false;
  const bool is_written = write(fd, text, (size_t)length) == length;
  close(fd);
  if (is_written && rename(fresh, name) == 0) return true;
  unlink(fresh);
  return false;
}

static bool is_ours(const char *name, long value) {
  char text[32] = {0};
  const int fd = open(name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return false;
  const ssize_t length = read(fd, text, sizeof text - 1);
  close(fd);
  return length > 0 && strtol(text, NULL, 10) == value;
}

// What somebody else wrote meanwhile stays: it is not ours to judge.
static void remove_files(int port) {
  if (is_ours("gateway.port", port)) unlink("gateway.port");
  if (is_ours("gateway.pid", getpid())) unlink("gateway.pid");
}

// ---- Log

static void rotate_log(const char *path) {
  char from[4096], to[4096];
  for (int number = LOG_FILES_KEPT; number >= 1; number--) {
    if (number == 1) snprintf(from, sizeof from, "%s", path);
    else snprintf(from, sizeof from, "%s.%d", path, number - 1);
    if ((size_t)snprintf(to, sizeof to, "%s.%d", path, number) >= sizeof to) return;
    rename(from, to); // One that is not there yet is no fault.
  }
}

// Returns -1 with errno. A log that cannot be rotated is still a log.
static int open_log(const char *path) {
  struct stat status;
  if (lstat(path, &status) == 0 && S_ISREG(status.st_mode) && status.st_size > LOG_BYTES_MAX) rotate_log(path);
  return open(path, O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY, 0600);
}

// ---- The gateway

static _Noreturn void become_launcher(const struct options *options, pid_t parent, int listener, int pair, int log) {
  static char *words[LAUNCHER_WORDS_MAX + 8];
  char parent_text[32];
  snprintf(parent_text, sizeof parent_text, "%d", parent);
  char *fixed[] = {options->launcher, "--parent", parent_text, "--keep-fd", "3", "--keep-fd", "4"};
  size_t count = sizeof fixed / sizeof *fixed;
  memcpy(words, fixed, sizeof fixed);
  for (int i = 0; i < options->rest_count; i++) words[count++] = options->rest[i];

  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
  signal(SIGPIPE, SIG_DFL);
  const int null = open("/dev/null", O_RDONLY);
  if (null < 0 || dup2(null, 0) < 0 || dup2(log, 1) < 0 || dup2(log, 2) < 0) _exit(STEP_START);
  if (dup2(listener, LISTENER_FD) < 0 || dup2(pair, PAIR_FD) < 0 || chdir("/") < 0) _exit(STEP_START);
  execv(options->launcher, words);
  fprintf(stderr, "capsem-gatekeeper: %s: %s\n", options->launcher, strerrorname_np(errno));
  _exit(STEP_START);
}

// ---- Grants. Each returns a descriptor, or -1 with errno.

static int connect_service(void) {
  const struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "service.sock"};
  // Never waits: a service whose queue is full is refused with EAGAIN.
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0 || connect(fd, (const struct sockaddr *)&address, sizeof address) == 0) return fd;
  const int error = errno;
  close(fd);
  errno = error;
  return -1;
}

static int open_token(void) {
  // Non-blocking, so that a pipe of that name cannot hold us; what is no file is refused.
  const int fd = open("gateway.token", O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  struct stat status;
  if (fd < 0) return -1;
  if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode)) return fd;
  close(fd);
  errno = EINVAL;
  return -1;
}

static void say_ready(struct gateway *gateway) {
  if (gateway->is_ready) return;
  gateway->is_ready = true;
  dprintf(1, "ready %d\n", gateway->port);
  // Whoever waited for that line waits no longer for its end; what goes wrong later is the log's.
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  const int log = open_log(gateway->log);
  if (null >= 0 && dup2(null, 1) >= 0) close(null);
  if (log >= 0 && dup2(log, 2) >= 0) close(log);
}

static void answer(int pair, uint8_t number, int fd, bool is_granted) {
  uint8_t bytes[3] = {number, is_granted ? 0 : 1, is_granted ? 0 : (uint8_t)errno};
  union {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(sizeof(int))];
  } control = {0};
  struct iovec part = {bytes, sizeof bytes};
  struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
  if (fd >= 0) {
    message.msg_control = control.bytes;
    message.msg_controllen = sizeof control.bytes;
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(header), &fd, sizeof fd);
  }
  // Never waits for a gateway that does not read: it asks one thing at a time, or loses answers.
  sendmsg(pair, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (fd >= 0) close(fd);
}

static void serve(struct gateway *gateway) {
  uint8_t request[3];
  const ssize_t length = recv(gateway->pair, request, sizeof request, MSG_DONTWAIT);
  if (length < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (length != 2) { // Its end is closed, or it speaks something else: nothing is granted any more.
    close(gateway->pair);
    gateway->pair = -1;
    return;
  }
  int fd = -1;
  errno = EINVAL;
  switch (request[0]) {
  case 'C': fd = connect_service(); break;
  case 'T': fd = open_token(); break;
  case 'L': fd = open_log(gateway->log); break;
  case 'R': say_ready(gateway); break;
  }
  answer(gateway->pair, request[1], fd, fd >= 0 || request[0] == 'R');
}

// ---- Life

static void take_signal(struct gateway *gateway, int signals) {
  struct signalfd_siginfo info;
  if (read(signals, &info, sizeof info) != sizeof info) return;
  if (info.ssi_signo == SIGHUP) {
    // Before it is ready it has no ear for it and would end.
    if (gateway->is_ready) kill(gateway->pid, SIGHUP);
  } else if (info.ssi_signo != SIGCHLD && !gateway->is_stopping) {
    gateway->is_stopping = true;
    gateway->kill_at_ms = now_ms() + STOP_TIMEOUT_MS;
    kill(gateway->pid, SIGTERM);
  }
}

// Returns the gateway's exit code.
static int live(struct gateway *gateway, int signals) {
  for (;;) {
    int status = 0;
    if (waitpid(gateway->pid, &status, WNOHANG) == gateway->pid)
      return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    struct pollfd entries[2] = {{signals, POLLIN, 0}, {gateway->pair, POLLIN, 0}};
    const int64_t left_ms = gateway->is_stopping ? gateway->kill_at_ms - now_ms() : -1;
    if (gateway->is_stopping && left_ms <= 0) {
      kill(gateway->pid, SIGKILL);
      gateway->kill_at_ms = now_ms() + STOP_TIMEOUT_MS;
      continue;
    }
    if (poll(entries, 2, (int)left_ms) <= 0) continue;
    if (entries[0].revents != 0) take_signal(gateway, signals);
    if (entries[1].revents != 0) serve(gateway);
  }
}

static int watch_signals(void) {
  sigset_t watched;
  sigemptyset(&watched);
  for (size_t i = 0; i < 4; i++) sigaddset(&watched, (const int[]){SIGTERM, SIGINT, SIGHUP, SIGCHLD}[i]);
  if (sigprocmask(SIG_BLOCK, &watched, NULL) < 0) fail(STEP_START, "signals");
  signal(SIGPIPE, SIG_IGN);
  const int fd = signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK);
  if (fd < 0) fail(STEP_START, "signals");
  return fd;
}

int main(int count, char **words) {
  static struct options options;
  parse_options(&options, count, words);
  umask(077);
  enter_folder(options.run_dir);
  struct gateway gateway = {.log = options.log};
  const int listener = listen_on(options.listen, &gateway.port);
  const int log = open_log(options.log);
  if (log < 0) fail(STEP_LOG, options.log);
  const int signals = watch_signals();
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) fail(STEP_START, "pair");
  const int theirs = parked(pair[1], STEP_START);
  const int parked_log = parked(log, STEP_START);
  if (!write_file("gateway.pid", getpid()) || !write_file("gateway.port", gateway.port)) {
    const int error = errno;
    remove_files(gateway.port);
    errno = error;
    fail(STEP_FILES, "runtime files");
  }
  const pid_t self = getpid();
  gateway.pid = fork();
  if (gateway.pid == 0) become_launcher(&options, self, listener, theirs, parked_log);
  const int error = errno;
  close(listener);
  close(theirs);
  close(parked_log);
  gateway.pair = pair[0];
  if (gateway.pid < 0) {
    remove_files(gateway.port);
    errno = error;
    fail(STEP_START, "fork");
  }
  const int code = live(&gateway, signals);
  remove_files(gateway.port);
  return code;
}
