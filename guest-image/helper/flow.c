#include "traffic.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

/* Below the 256 of a lane: the host counts a stream until it has read its end, which is later than here. */
#define FLOWS_MAX 240
#define DATA_BYTES_MAX 32768u /* of one frame: a round of the others waits for no more */
#define GRANT_BYTES (CREDIT_MAX / 2)
/* What slow readers may have waiting, all together; the slowest is cut off. The agent's memory is not the workload's. */
#define HELD_BYTES_MAX 16777216u
#define HELD_STEP 4096u
#define WAIT_MS 10000
/* A client that is gone: so long the host has for what it still sent, before its stream is reset. */
#define GONE_MS 1000
/* The host's own streams, which are refused, take half of them at most; ours are fewer than the rest. */
#define RESETS_MAX 1024
#define FILL_ROOM_MIN 512u /* an open, a name, a window, an end and some data */
#define META "CAPSEM_META:"

struct flow {
  int fd;            /* -1: this place is free */
  uint32_t stream;   /* 0: waits for a lane */
  uint32_t serial;   /* an event of an older one is known by it */
  uint64_t deadline; /* 0: none */
  bool is_tcp, can_read, can_write, is_at_end, is_announced, end_sent, host_ended;
  uint32_t credit, host_credit, owed;
  unsigned char *held; /* what the client did not take yet */
  size_t held_from, held_to, held_room;
  char name[PROCESS_NAME_BYTES + 1];
};

static struct flow flows[FLOWS_MAX];
static int flow_count, flow_top, poller; /* no flow is at flow_top or above */
static uint32_t serials, next_stream, host_stream_seen;
static size_t held_bytes;
static int turn;
static struct {
  uint32_t stream;
  unsigned char code;
} resets[RESETS_MAX];
static size_t resets_from, resets_count;

void flows_init(int epoll) {
  poller = epoll;
  for (int i = 0; i < FLOWS_MAX; i++)
    flows[i].fd = -1;
}

bool flows_are_full(void) { return flow_count == FLOWS_MAX; }

static void forget_held(struct flow *flow) {
  held_bytes -= flow->held_to - flow->held_from;
  free(flow->held);
  flow->held = NULL;
  flow->held_from = flow->held_to = flow->held_room = 0;
}

static void flow_close(struct flow *flow, bool is_abrupt) {
  struct linger at_once = {.l_onoff = 1, .l_linger = 0};
  if (is_abrupt && flow->is_tcp)
    setsockopt(flow->fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  close(flow->fd);
  forget_held(flow);
  flow->fd = -1;
  flow->stream = 0;
  flow_count--;
  while (flow_top > 0 && flows[flow_top - 1].fd < 0)
    flow_top--;
}

static void queue_reset(uint32_t stream, unsigned char code) {
  if (resets_count == RESETS_MAX)
    return;
  size_t at = (resets_from + resets_count++) % RESETS_MAX;
  resets[at].stream = stream;
  resets[at].code = code;
}

static void flow_break(struct flow *flow, unsigned char code) {
  if (flow->stream != 0 && flow->is_announced)
    queue_reset(flow->stream, code);
  flow_close(flow, true);
}

void flow_accept(int fd, bool is_tcp, const char *name, uint64_t now) {
  uint32_t index = 0;
  int yes = 1;
  while (index < FLOWS_MAX && flows[index].fd >= 0)
    index++;
  if (index == FLOWS_MAX) {
    close(fd);
    return;
  }
  struct flow *flow = &flows[index];
  *flow = (struct flow){.fd = fd, .serial = ++serials, .is_tcp = is_tcp, .deadline = now + WAIT_MS};
  snprintf(flow->name, sizeof flow->name, "%s", name);
  if (is_tcp)
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  /* Edges: what is ready and cannot be used yet does not wake us again and again. */
  struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
                              .data.u64 = (uint64_t)flow->serial << 32 | (SOURCE_FLOWS + index)};
  flow_count++;
  flow_top = flow_top > (int)index ? flow_top : (int)index + 1;
  if (epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event) != 0)
    flow_close(flow, true);
}

bool flows_wait(void) {
  for (int i = 0; i < flow_top; i++)
    if (flows[i].fd >= 0 && flows[i].stream == 0)
      return true;
  return false;
}

static void start(struct flow *flow) {
  if (next_stream > UINT32_MAX - 2) {
    flow_close(flow, true);
    return;
  }
  flow->stream = next_stream;
  next_stream += 2;
  flow->deadline = 0;
  flow->credit = flow->host_credit = CREDIT_MAX;
}

void flows_start(void) {
  next_stream = 1;
  host_stream_seen = 0;
  resets_count = 0;
  turn = -1;
}

void flows_drop(void) {
  for (int i = 0; i < flow_top; i++)
    if (flows[i].fd >= 0 && flows[i].stream != 0)
      flow_close(&flows[i], true);
  resets_count = 0;
}

void flows_expire(uint64_t now) {
  for (int i = 0; i < flow_top; i++)
    if (flows[i].fd >= 0 && flows[i].deadline != 0 && flows[i].deadline <= now)
      flow_break(&flows[i], RESET_CANCELLED);
}

uint64_t flows_deadline(void) {
  uint64_t first = UINT64_MAX;
  for (int i = 0; i < flow_top; i++)
    if (flows[i].fd >= 0 && flows[i].deadline != 0 && flows[i].deadline < first)
      first = flows[i].deadline;
  return first;
}

/* Both directions are over, or the host's is and all of it was taken. */
static void settle(struct flow *flow) {
  if (!flow->host_ended || flow->held_to > flow->held_from)
    return;
  if (flow->end_sent)
    flow_close(flow, false);
  else
    shutdown(flow->fd, SHUT_WR);
}

/* Writes what the client takes; false when it takes nothing any more. */
static bool give(struct flow *flow, const unsigned char *bytes, size_t length, size_t *given) {
  ssize_t sent = flow->can_write ? send(flow->fd, bytes, length, MSG_DONTWAIT | MSG_NOSIGNAL) : 0;
  if (sent < 0 && errno != EAGAIN && errno != EINTR)
    return false;
  *given = sent < 0 ? 0 : (size_t)sent;
  if (*given < length)
    flow->can_write = false;
  flow->owed += (uint32_t)*given;
  return true;
}

static struct flow *slowest(void) {
  struct flow *most = &flows[0];
  for (int i = 1; i < flow_top; i++)
    if (flows[i].held_to - flows[i].held_from > most->held_to - most->held_from)
      most = &flows[i];
  return most;
}

/* Keeps what the client does not take now: never more than the credit of one stream. */
static void hold(struct flow *flow, const unsigned char *bytes, size_t length) {
  while (held_bytes + length > HELD_BYTES_MAX) {
    struct flow *most = slowest();
    flow_break(most, RESET_CANCELLED);
    if (most == flow)
      return;
  }
  size_t waiting = flow->held_to - flow->held_from;
  if (flow->held_to + length > flow->held_room) {
    if (flow->held_from > 0)
      memmove(flow->held, flow->held + flow->held_from, waiting);
    flow->held_from = 0;
    flow->held_to = waiting;
    size_t room = flow->held_room == 0 ? HELD_STEP : flow->held_room;
    while (room < waiting + length)
      room *= 2;
    unsigned char *more = room > flow->held_room ? realloc(flow->held, room) : flow->held;
    if (more == NULL) {
      flow_break(flow, RESET_INTERNAL);
      return;
    }
    flow->held = more;
    flow->held_room = room;
  }
  memcpy(flow->held + flow->held_to, bytes, length);
  flow->held_to += length;
  held_bytes += length;
}

static void give_held(struct flow *flow) {
  size_t given;
  while (flow->can_write && flow->held_to > flow->held_from) {
    if (!give(flow, flow->held + flow->held_from, flow->held_to - flow->held_from, &given)) {
      flow_break(flow, RESET_CANCELLED);
      return;
    }
    flow->held_from += given;
    held_bytes -= given;
  }
  if (flow->held_to == flow->held_from) {
    forget_held(flow);
    settle(flow);
  }
}

void flow_event(uint32_t index, uint32_t serial, uint32_t events, uint64_t now) {
  struct flow *flow = &flows[index];
  if (index >= FLOWS_MAX || flow->fd < 0 || flow->serial != serial)
    return;
  bool is_gone = (events & EPOLLHUP) != 0;
  if ((events & EPOLLERR) || (is_gone && flow->stream == 0)) {
    flow_break(flow, RESET_CANCELLED);
    return;
  }
  flow->can_read |= (events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP)) != 0;
  flow->is_at_end |= (events & (EPOLLRDHUP | EPOLLHUP)) != 0;
  if (is_gone && flow->deadline == 0)
    flow->deadline = now + GONE_MS;
  if ((events & EPOLLOUT) && !flow->can_write) {
    flow->can_write = true;
    if (flow->held_to > flow->held_from)
      give_held(flow);
  }
}

static struct flow *find(uint32_t stream) {
  for (int i = 0; i < flow_top; i++)
    if (flows[i].stream == stream)
      return &flows[i];
  return NULL;
}

static const char *take_data(struct flow *flow, const unsigned char *payload, uint32_t length) {
  size_t given = 0;
  if (!flow->host_ended && length > flow->host_credit)
    return "a stream sent more than its credit";
  flow->host_credit -= length;
  if (flow->host_ended)
    flow_break(flow, RESET_PROTOCOL_ERROR);
  else if (flow->held_to == flow->held_from && !give(flow, payload, length, &given))
    flow_break(flow, RESET_CANCELLED);
  else if (given < length)
    hold(flow, payload + given, length - given);
  return NULL;
}

static const char *take_open(uint32_t stream) {
  if (stream % 2 != 0 || stream <= host_stream_seen)
    return "it opened a stream with a wrong id";
  if (resets_count >= RESETS_MAX / 2)
    return "it causes resets and reads none";
  host_stream_seen = stream;
  queue_reset(stream, RESET_NO_SUCH_PORT);
  return NULL;
}

const char *flow_take(unsigned char type, uint32_t stream, const unsigned char *payload, uint32_t length) {
  if (type == FRAME_OPEN)
    return take_open(stream);
  struct flow *flow = find(stream);
  /* What crossed our reset, or our end, is late and harmless. */
  bool was_open = stream % 2 == 0 ? stream <= host_stream_seen : stream < next_stream;
  if (flow == NULL)
    return was_open ? NULL : "a frame names a stream that was never opened";
  if (!flow->is_announced)
    return "a frame names a stream that is not yet open";
  uint32_t bytes;
  switch (type) {
  case FRAME_DATA:
    return take_data(flow, payload, length);
  case FRAME_WINDOW:
    bytes = get_u32(payload);
    if (bytes == 0 || bytes > CREDIT_MAX - flow->credit)
      return "a stream granted too much";
    flow->credit += bytes;
    return NULL;
  case FRAME_END:
    if (flow->host_ended) {
      flow_break(flow, RESET_PROTOCOL_ERROR);
      return NULL;
    }
    flow->host_ended = true;
    settle(flow);
    return NULL;
  default: /* a reset */
    if (payload[0] < RESET_CANCELLED || payload[0] > RESET_LANE_LOST)
      return "a reset has an unknown code";
    flow_close(flow, true);
    return NULL;
  }
}

/* The open frame, and the metadata line as the first data. */
static size_t announce(struct flow *flow, unsigned char *at) {
  put_head(at, 2, FRAME_OPEN, flow->stream);
  at[FRAME_HEAD] = TRAFFIC_PORT >> 8;
  at[FRAME_HEAD + 1] = TRAFFIC_PORT & 255;
  unsigned char *line = at + FRAME_HEAD + 2;
  int length = snprintf((char *)line + FRAME_HEAD + 1, sizeof META + sizeof flow->name + 1, META "%s\n", flow->name) + 1;
  line[FRAME_HEAD] = '\0';
  put_head(line, (uint32_t)length, FRAME_DATA, flow->stream);
  flow->credit -= (uint32_t)length;
  flow->is_announced = true;
  return FRAME_HEAD + 2 + FRAME_HEAD + (size_t)length;
}

static size_t send_data(struct flow *flow, unsigned char *at, size_t room) {
  size_t most = room - FRAME_HEAD;
  most = most < DATA_BYTES_MAX ? most : DATA_BYTES_MAX;
  most = most < flow->credit ? most : flow->credit;
  ssize_t got = recv(flow->fd, at + FRAME_HEAD, most, MSG_DONTWAIT);
  if (got > 0) {
    /* Less than was asked for: there is no more, unless the end has come with it. */
    flow->can_read = (size_t)got == most || flow->is_at_end;
    flow->credit -= (uint32_t)got;
    put_head(at, (uint32_t)got, FRAME_DATA, flow->stream);
    return FRAME_HEAD + (size_t)got;
  }
  if (got == 0) {
    flow->can_read = false;
    flow->end_sent = true;
    put_head(at, 0, FRAME_END, flow->stream);
    settle(flow);
    return FRAME_HEAD;
  }
  if (errno == EAGAIN)
    flow->can_read = false;
  else if (errno != EINTR)
    flow_break(flow, RESET_CANCELLED);
  return 0;
}

static size_t fill_from(struct flow *flow, unsigned char *at, size_t room) {
  size_t used = 0;
  if (flow->stream == 0) {
    start(flow);
    if (flow->fd < 0)
      return 0;
  }
  if (!flow->is_announced)
    used += announce(flow, at);
  if (flow->owed >= GRANT_BYTES && !flow->host_ended) {
    put_head(at + used, 4, FRAME_WINDOW, flow->stream);
    put_u32(at + used + FRAME_HEAD, flow->owed);
    flow->host_credit += flow->owed;
    flow->owed = 0;
    used += FRAME_HEAD + 4;
  }
  if (flow->can_read && !flow->end_sent && flow->credit > 0)
    used += send_data(flow, at + used, room - used);
  return used;
}

/* Resets, then one frame of data of each in turn, as far as there is room. */
size_t flows_fill(unsigned char *at, size_t room) {
  size_t used = 0;
  while (resets_count > 0 && room - used >= FILL_ROOM_MIN) {
    put_head(at + used, 1, FRAME_RESET, resets[resets_from].stream);
    at[used + FRAME_HEAD] = resets[resets_from].code;
    used += FRAME_HEAD + 1;
    resets_from = (resets_from + 1) % RESETS_MAX;
    resets_count--;
  }
  for (int i = 0, top = flow_top; i < top && room - used >= FILL_ROOM_MIN; i++) {
    turn = turn + 1 < flow_top ? turn + 1 : 0;
    struct flow *flow = &flows[turn];
    if (flow->fd >= 0)
      used += fill_from(flow, at + used, room - used);
  }
  return used;
}
