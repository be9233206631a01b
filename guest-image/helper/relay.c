#include "relay.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define INPUT_BYTES 131072 /* twice what one read of the agent takes */
#define ORDERS_BYTES 131072
#define ORDERS_FD 3
#define RECORD_HEAD_BYTES 5
#define SEND_BYTES 40

enum record { RECORD_FRAMES = 1, RECORD_SEND, RECORD_GRANT, RECORD_STOP };

/* Bytes between `from` and `to` wait to be written. */
struct buffer {
  size_t from, to;
  unsigned char *bytes;
};

static unsigned char input_bytes[FOLLOW_HEADROOM + INPUT_BYTES + FOLLOW_HEADROOM], order_bytes[ORDERS_BYTES], frame_bytes[PORT_WRITE_BYTES];
static struct buffer input = {.bytes = input_bytes};
static struct buffer orders = {.bytes = order_bytes};
static struct buffer frame = {.bytes = frame_bytes}; /* of a body, begun or not */
static uint32_t frames_left;                         /* of the agent's frames record that has begun */
static bool is_bodys_turn; /* a record is through: the next one waits for one frame of a body */
static int port;

static bool is_blocked(ssize_t result) {
  return result < 0 && (errno == EAGAIN || errno == EINTR);
}

/* A virtio port gives 4 KiB a read. Node makes one read a turn of its event loop; here it is read until it is
 * empty, so that the agent is woken for large pieces. */
static int fill_input(void) {
  unsigned char *bytes = input.bytes + FOLLOW_HEADROOM;
  size_t length = 0;
  while (length < INPUT_BYTES) {
    ssize_t got = read(port, bytes + length, INPUT_BYTES - length);
    if (got > 0) {
      length += (size_t)got;
      continue;
    }
    if (!is_blocked(got) && length == 0)
      return -1; /* what came before an end is handed on first */
    break;
  }
  struct span agents = follow(bytes, length);
  input.from = (size_t)(agents.at - input.bytes);
  input.to = input.from + agents.length;
  if (agents.length == 0)
    input.from = input.to = 0;
  return 0;
}

static int write_some(int fd, struct buffer *from, size_t most) {
  ssize_t written = write(fd, from->bytes + from->from, most);
  if (written < 0)
    return is_blocked(written) ? 0 : -1;
  from->from += (size_t)written;
  if (from->from == from->to)
    from->from = from->to = 0;
  return written > 0 ? 1 : 0;
}

static int hand_input_on(void) {
  return input.to > 0 ? write_some(STDOUT_FILENO, &input, input.to - input.from) : 0;
}

static int fill_orders(void) {
  memmove(orders.bytes, orders.bytes + orders.from, orders.to - orders.from);
  orders.to -= orders.from;
  orders.from = 0;
  ssize_t got = read(ORDERS_FD, orders.bytes + orders.to, ORDERS_BYTES - orders.to);
  if (got <= 0)
    return is_blocked(got) ? 0 : -1;
  orders.to += (size_t)got;
  return 0;
}

static int obey(unsigned kind, uint32_t length, const unsigned char *at) {
  if (kind == RECORD_SEND && length == SEND_BYTES) {
    struct body_order order = {.body = get_u32(at), .stream = get_u32(at + 4), .fd = get_u32(at + 8),
                               .offset = get_u64(at + 12), .length = get_u64(at + 20), .credit = get_u32(at + 28)};
    body_start(&order);
    follow_from(get_u64(at + 32));
  } else if (kind == RECORD_GRANT && length == 8) {
    body_grant(get_u32(at), get_u32(at + 4));
  } else if (kind == RECORD_STOP && length == 4) {
    body_stop(get_u32(at));
  } else {
    return -1;
  }
  return 0;
}

/* Obeys what is there up to the next frames record, which it begins; that waits for a body's frame to be out. */
static int take_orders(void) {
  while (frames_left == 0 && orders.to - orders.from >= RECORD_HEAD_BYTES) {
    const unsigned char *head = orders.bytes + orders.from;
    uint32_t length = get_u32(head + 1);
    if (head[0] == RECORD_FRAMES) {
      frames_left = length;
      orders.from += RECORD_HEAD_BYTES;
      continue;
    }
    if (length > SEND_BYTES)
      return -1;
    if (orders.to - orders.from < RECORD_HEAD_BYTES + length)
      return 0;
    orders.from += RECORD_HEAD_BYTES + length;
    if (obey(head[0], length, head + RECORD_HEAD_BYTES) != 0)
      return -1;
  }
  return 0;
}

/* 1: something was written; 0: nothing there, or no room. */
static int write_agents_frames(void) {
  size_t there = orders.to - orders.from, most = there < frames_left ? there : frames_left;
  ssize_t written = most > 0 ? write(port, orders.bytes + orders.from, most) : 0;
  if (written < 0)
    return is_blocked(written) ? 0 : -1;
  orders.from += (size_t)written;
  frames_left -= (uint32_t)written;
  is_bodys_turn = frames_left == 0;
  return written > 0 ? 1 : 0;
}

/* One whole thing after the other goes to the port: a body's frame, or a record of the agent's frames; in turn. */
static int write_port(bool *is_waiting) {
  int result = 1;
  while (result > 0) {
    if (frame.to == 0 && is_bodys_turn)
      frame.to = body_frame(frame.bytes);
    is_bodys_turn = false;
    if (frame.to == 0 && take_orders() != 0)
      return -1;
    if (frame.to == 0 && frames_left == 0)
      frame.to = body_frame(frame.bytes);
    if (frame.to > 0)
      result = write_some(port, &frame, frame.to - frame.from);
    else
      result = frames_left > 0 ? write_agents_frames() : 0;
  }
  *is_waiting = frame.to > 0 || (frames_left > 0 && orders.to > orders.from);
  return result;
}

static int send_reports(void) {
  size_t length;
  const unsigned char *reports = body_reports(&length);
  if (length == 0)
    return 0;
  ssize_t written = write(ORDERS_FD, reports, length);
  if (written < 0)
    return is_blocked(written) ? 0 : -1;
  body_reports_taken((size_t)written);
  return 0;
}

/* Nothing is sent any more: the agent sees all that comes, and what was held of it. */
static void follow_no_more(void) {
  if (bodies_are_none())
    input.to += follow_release(input.bytes + input.to);
}

static int serve(void) {
  bool port_waits = false;
  for (;;) {
    size_t reports;
    follow_no_more();
    body_reports(&reports);
    /* Full of a record that the port does not take: the agent waits too. */
    bool room = orders.to - orders.from < ORDERS_BYTES;
    struct pollfd fds[] = {
        {.fd = port, .events = (short)((input.to == 0 ? POLLIN : 0) | (port_waits ? POLLOUT : 0))},
        {.fd = ORDERS_FD, .events = (short)((room ? POLLIN : 0) | (reports > 0 ? POLLOUT : 0))},
        {.fd = input.to > 0 ? STDOUT_FILENO : -1, .events = POLLOUT},
    };
    if (poll(fds, 3, -1) < 0 && errno != EINTR)
      return -1;
    if ((fds[0].revents & (POLLHUP | POLLERR | POLLNVAL)) && !(fds[0].revents & POLLIN))
      return 0;
    if ((fds[0].revents & POLLIN) && fill_input() != 0)
      return 0;
    if (hand_input_on() < 0)
      return -1;
    if ((fds[1].revents & (POLLHUP | POLLERR)) && !(fds[1].revents & POLLIN))
      return 0; /* the agent let go of the lane */
    if ((fds[1].revents & POLLIN) && fill_orders() != 0)
      return 0;
    if (write_port(&port_waits) < 0 || send_reports() < 0)
      return -1;
  }
}

int open_port(const char *path) {
  struct stat status;
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  if (stat(path, &status) != 0)
    return -1;
  if (!S_ISSOCK(status.st_mode))
    return open(path, O_RDWR | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (strlen(path) >= sizeof address.sun_path)
    return -1;
  strcpy(address.sun_path, path);
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) != 0)
    return -1;
  return fcntl(fd, F_SETFL, O_NONBLOCK) == 0 ? fd : -1;
}

int relay_main(int argc, char **argv) {
  static const int own[] = {STDOUT_FILENO, ORDERS_FD};
  if (argc != 3 || die_with_parent(SIGKILL, getppid()) != 0)
    return 2;
  for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
    if (fcntl(own[i], F_SETFL, O_NONBLOCK) != 0)
      return 2;
  port = open_port(argv[2]);
  if (port < 0)
    return 1;
  return serve() == 0 ? 0 : 1;
}
