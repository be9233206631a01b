#include "traffic.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define EVENTS_MAX 64
#define ACCEPTS_MAX 16 /* in one turn: those that are connected come first */
#define LINE_BYTES 128
#define BIT(capability) (UINT64_C(1) << (capability))

static int poller, listeners[2], is_listening = 1;
static char line[LINE_BYTES];
static size_t line_used;

static uint64_t now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static int watch(int fd, enum source source, int operation, uint32_t events) {
  struct epoll_event event = {.events = events, .data.u64 = source};
  return epoll_ctl(poller, operation, fd, &event);
}

static int hex_value(char c) {
  if (c >= '0' && c <= '9')
    return c - '0';
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* "lane GENERATION MARKER" */
static bool parse_order(char *text, uint32_t *generation, unsigned char marker[MARKER_BYTES]) {
  uint64_t number;
  char *hex = strncmp(text, "lane ", 5) == 0 ? strchr(text + 5, ' ') : NULL;
  if (hex == NULL || strlen(hex + 1) != MARKER_BYTES * 2)
    return false;
  *hex++ = '\0';
  if (!parse_u64(text + 5, 1, UINT32_MAX, &number))
    return false;
  *generation = (uint32_t)number;
  for (int i = 0; i < MARKER_BYTES; i++) {
    int high = hex_value(hex[2 * i]), low = hex_value(hex[2 * i + 1]);
    if (high < 0 || low < 0)
      return false;
    marker[i] = (unsigned char)(high << 4 | low);
  }
  return true;
}

static int obey(char *text, uint64_t now) {
  unsigned char marker[MARKER_BYTES];
  uint32_t generation;
  struct failure failure = {"request", EINVAL};
  if (!parse_order(text, &generation, marker))
    return answer_failure(STDOUT_FILENO, &failure), -1;
  if (lane_begin(generation, marker, now) == 0)
    return answer(STDOUT_FILENO, "ok %u", generation);
  fail(&failure, "port", errno);
  return answer_failure(STDOUT_FILENO, &failure);
}

/* 1: the agent is gone. -1: it gave an order that is none. */
static int take_orders(uint64_t now) {
  ssize_t got = read(STDIN_FILENO, line + line_used, sizeof line - 1 - line_used);
  if (got < 0 && (errno == EAGAIN || errno == EINTR))
    return 0;
  if (got <= 0)
    return 1;
  line_used += (size_t)got;
  char *end;
  while ((end = memchr(line, '\n', line_used)) != NULL) {
    *end = '\0';
    if (obey(line, now) != 0)
      return -1;
    size_t taken = (size_t)(end - line) + 1;
    memmove(line, line + taken, line_used - taken);
    line_used -= taken;
  }
  return line_used < sizeof line - 1 ? 0 : -1;
}

static void accept_some(enum source source, uint64_t now) {
  bool is_tcp = source == SOURCE_HTTP;
  char name[PROCESS_NAME_BYTES + 1];
  for (int i = 0; i < ACCEPTS_MAX && !flows_are_full(); i++) {
    int fd = accept4(listeners[is_tcp], NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0)
      return;
    if (is_tcp)
      name_of_connection(fd, name);
    else
      name_of_socket(fd, name);
    flow_accept(fd, is_tcp, name, now);
  }
}

/* Those that find no place wait in the listener's queue. */
static void listen_if_room(void) {
  int wanted = !flows_are_full();
  if (wanted == is_listening)
    return;
  is_listening = wanted;
  for (int i = 0; i < 2; i++)
    watch(listeners[i], SOURCE_SOCKET + (enum source)i, EPOLL_CTL_MOD, wanted ? EPOLLIN : 0);
}

static int timeout_from(uint64_t now) {
  uint64_t lane = lane_deadline(), flows = flows_deadline(), first = lane < flows ? lane : flows;
  if (first == UINT64_MAX)
    return -1;
  return first <= now ? 0 : first - now > 60000 ? 60000 : (int)(first - now);
}

static int serve(void) {
  struct epoll_event events[EVENTS_MAX];
  for (;;) {
    int count = epoll_wait(poller, events, EVENTS_MAX, timeout_from(now_ms()));
    if (count < 0 && errno != EINTR)
      return -1;
    uint64_t now = now_ms();
    for (int i = 0; i < count; i++) {
      uint32_t source = (uint32_t)events[i].data.u64;
      if (source == SOURCE_ORDERS) {
        int result = take_orders(now);
        if (result != 0)
          return result;
      } else if (source == SOURCE_PORT) {
        lane_event(events[i].events, now);
      } else if (source == SOURCE_SOCKET || source == SOURCE_HTTP) {
        accept_some(source, now);
      } else {
        flow_event(source - SOURCE_FLOWS, (uint32_t)(events[i].data.u64 >> 32), events[i].events, now);
      }
    }
    flows_expire(now);
    lane_work(now);
    listen_if_room();
  }
}

/* What looking for a connection's process takes, and nothing else. */
static int renounce_rights(void) {
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
    return -1;
  return keep_capabilities(BIT(CAP_SYS_PTRACE) | BIT(CAP_DAC_READ_SEARCH));
}

/* "init PID" is the first order: until it comes there is nothing to do. 1: the agent is gone. */
static int await_init(int *init) {
  uint64_t pid;
  char *end;
  while ((end = memchr(line, '\n', line_used)) == NULL) {
    ssize_t got = line_used < sizeof line - 1 ? read(STDIN_FILENO, line + line_used, sizeof line - 1 - line_used) : -1;
    if (got <= 0)
      return got == 0 ? 1 : -1;
    line_used += (size_t)got;
  }
  *end = '\0';
  if (strncmp(line, "init ", 5) != 0 || !parse_u64(line + 5, 2, PID_MAX, &pid))
    return -1;
  *init = (int)pid;
  size_t taken = (size_t)(end - line) + 1;
  memmove(line, line + taken, line_used - taken);
  line_used -= taken;
  return 0;
}

static int prepare(const char *port, int init, struct failure *failure) {
  struct doors doors;
  if (open_doors(init, &doors, failure) != 0)
    return -1;
  listeners[0] = doors.socket;
  listeners[1] = doors.address;
  poller = epoll_create1(EPOLL_CLOEXEC);
  if (poller < 0 || watch(STDIN_FILENO, SOURCE_ORDERS, EPOLL_CTL_ADD, EPOLLIN) != 0 ||
      watch(listeners[0], SOURCE_SOCKET, EPOLL_CTL_ADD, EPOLLIN) != 0 ||
      watch(listeners[1], SOURCE_HTTP, EPOLL_CTL_ADD, EPOLLIN) != 0)
    return fail(failure, "listen", errno);
  peer_init(doors.connections);
  flows_init(poller);
  lane_init(port, poller);
  return renounce_rights() == 0 ? 0 : fail(failure, "capabilities", errno);
}

int traffic_main(int argc, char **argv) {
  struct failure failure = {"request", EINVAL};
  int init = 0;
  if (argc != 3)
    return answer_failure(STDOUT_FILENO, &failure), 2;
  if (die_with_parent(SIGKILL, getppid()) != 0)
    return 2;
  int result = await_init(&init);
  if (result > 0)
    return 0;
  if (result < 0 || prepare(argv[2], init, &failure) != 0)
    return answer_failure(STDOUT_FILENO, &failure), 1;
  return answer(STDOUT_FILENO, "ready") == 0 && serve() > 0 ? 0 : 1;
}
