#include "traffic.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define INPUT_BYTES 131072 /* a whole frame, and the beginning of the next */
#define OUTPUT_BYTES 131072
#define OUTPUT_RESERVE 256 /* for the last words of a lane */
#define STALE_BYTES_MAX 1048576
#define HELLO_BYTES_MAX 1024u
#define HELLO_MS 10000
/* A lane that is idle for so long although a client waits: the host has forgotten it, or never knew. Its port is closed
 * and opened again, which the host sees. And between two tries to open it. */
#define RING_MS 10000
#define RETRY_MS 250
#define HELLO_KEY "\x81\xaflane_generation" /* MessagePack: a map of one */

enum state {
  STATE_CLOSED,   /* the port is not open: nobody has asked for a lane */
  STATE_IDLE,     /* the host has not said yet which generation comes */
  STATE_STARTING, /* our hello is written, the host's is looked for */
  STATE_RUNNING,
};

static enum state state = STATE_CLOSED;
static const char *port_path;
static int port = -1, poller;
static uint32_t generation, polled_events;
static unsigned char marker[MARKER_BYTES];
static uint64_t state_since, retry_at;
static unsigned char input[INPUT_BYTES], output[OUTPUT_BYTES];
static size_t input_used, stale_bytes, output_from, output_to;
static bool is_output_blocked;

void lane_init(const char *path, int epoll) {
  port_path = path;
  poller = epoll;
}

bool lane_runs(void) { return state == STATE_RUNNING; }

static void become_state(enum state next, uint64_t now) {
  if (state == STATE_RUNNING)
    flows_drop();
  state = next;
  state_since = now;
  input_used = stale_bytes = 0;
}

static void close_port(uint64_t now) {
  if (port >= 0)
    close(port);
  port = -1;
  output_from = output_to = 0;
  is_output_blocked = false;
  become_state(STATE_CLOSED, now);
}

/* The other end is gone, or will not take it: not at once again. */
static void lose_port(uint64_t now) {
  close_port(now);
  retry_at = now + RETRY_MS;
}

static int open_lane(uint64_t now) {
  port = open_port(port_path);
  if (port < 0)
    return -1;
  struct epoll_event event = {.events = EPOLLIN, .data.u64 = SOURCE_PORT};
  if (epoll_ctl(poller, EPOLL_CTL_ADD, port, &event) != 0) {
    close_port(now);
    return -1;
  }
  polled_events = EPOLLIN;
  become_state(STATE_IDLE, now);
  return 0;
}

int lane_begin(uint32_t number, const unsigned char word[MARKER_BYTES], uint64_t now) {
  if (port < 0 && open_lane(now) != 0)
    return -1;
  become_state(STATE_STARTING, now);
  generation = number;
  memcpy(marker, word, MARKER_BYTES);
  /* What was not written yet is of an older generation, and so is a frame that is torn by this. */
  memcpy(output, marker, MARKER_BYTES);
  unsigned char *hello = output + MARKER_BYTES;
  size_t key = sizeof HELLO_KEY - 1;
  put_head(hello, (uint32_t)key + 5, FRAME_HELLO, 0);
  memcpy(hello + FRAME_HEAD, HELLO_KEY, key);
  hello[FRAME_HEAD + key] = 0xce;
  put_u32(hello + FRAME_HEAD + key + 1, generation);
  output_from = 0;
  output_to = MARKER_BYTES + FRAME_HEAD + key + 5;
  return 0;
}

/* A number of MessagePack that ends with the bytes; 0 is none. */
static uint32_t parse_number(const unsigned char *at, size_t length) {
  if (length == 1 && at[0] < 0x80)
    return at[0];
  if (length == 2 && at[0] == 0xcc)
    return at[1];
  if (length == 3 && at[0] == 0xcd)
    return (uint32_t)at[1] << 8 | at[2];
  return length == 5 && at[0] == 0xce ? get_u32(at + 1) : 0;
}

/* 1: our hello's answer, `*used` bytes long; 0: more is needed; -1: what follows the marker is none. */
static int parse_hello(const unsigned char *at, size_t length, size_t *used) {
  size_t key = sizeof HELLO_KEY - 1;
  if (length < FRAME_HEAD)
    return 0;
  uint32_t word = get_u32(at);
  if (at[4] != FRAME_HELLO || get_u32(at + 5) != 0 || word <= FRAME_COUNTED || word > FRAME_COUNTED + HELLO_BYTES_MAX)
    return -1;
  if (length < 4 + word)
    return 0;
  size_t payload = word - FRAME_COUNTED;
  const unsigned char *body = at + FRAME_HEAD;
  if (payload <= key || memcmp(body, HELLO_KEY, key) != 0 || parse_number(body + key, payload - key) != generation)
    return -1;
  *used = 4 + word;
  return 1;
}

static void drop_input(size_t bytes) {
  memmove(input, input + bytes, input_used - bytes);
  input_used -= bytes;
}

/* Throws input away until the marker with the host's hello behind it. */
static void look_for_hello(uint64_t now) {
  while (state == STATE_STARTING) {
    unsigned char *found = memmem(input, input_used, marker, MARKER_BYTES);
    size_t before = found != NULL ? (size_t)(found - input) : input_used < MARKER_BYTES ? 0 : input_used - MARKER_BYTES + 1;
    drop_input(before);
    stale_bytes += before;
    if (stale_bytes > STALE_BYTES_MAX) {
      become_state(STATE_IDLE, now);
      return;
    }
    if (found == NULL)
      return;
    size_t used = 0;
    int result = parse_hello(input + MARKER_BYTES, input_used - MARKER_BYTES, &used);
    if (result == 0)
      return;
    if (result < 0) {
      drop_input(MARKER_BYTES);
      stale_bytes += MARKER_BYTES;
      continue;
    }
    drop_input(MARKER_BYTES + used);
    state = STATE_RUNNING;
    flows_start();
  }
}

/* The lane is over; the host starts the next. A reset of the lane itself says why. */
static void end_lane(const char *fault, uint64_t now) {
  size_t words = strlen(fault);
  if (words > 0 && OUTPUT_BYTES - output_to >= FRAME_HEAD + 1 + words) {
    unsigned char *at = output + output_to;
    put_head(at, (uint32_t)words + 1, FRAME_RESET, 0);
    at[FRAME_HEAD] = RESET_PROTOCOL_ERROR;
    memcpy(at + FRAME_HEAD + 1, fault, words);
    output_to += FRAME_HEAD + 1 + words;
  }
  become_state(STATE_IDLE, now);
}

static const char *check_head(unsigned char type, uint32_t stream, uint32_t payload) {
  static const struct {
    uint32_t least, most;
  } rules[] = {
      [FRAME_OPEN] = {2, 66},    [FRAME_DATA] = {1, FRAME_BYTES_MAX - FRAME_COUNTED},
      [FRAME_WINDOW] = {4, 4},   [FRAME_END] = {0, 0},
      [FRAME_RESET] = {1, 129},
  };
  if (type < FRAME_OPEN || type > FRAME_RESET)
    return "a frame has an unknown type";
  if (stream == 0 && type != FRAME_RESET)
    return "a frame names stream 0";
  return payload < rules[type].least || payload > rules[type].most ? "a frame has a wrong length" : NULL;
}

static void take_frames(uint64_t now) {
  size_t at = 0;
  while (state == STATE_RUNNING && input_used - at >= FRAME_HEAD) {
    const unsigned char *frame = input + at;
    uint32_t word = get_u32(frame), stream = get_u32(frame + 5);
    const char *fault = NULL;
    if (word < FRAME_COUNTED || word > FRAME_BYTES_MAX)
      fault = "a frame has a wrong length";
    else
      fault = check_head(frame[4], stream, word - FRAME_COUNTED);
    if (fault == NULL && input_used - at < 4 + word)
      break;
    if (fault == NULL && stream == 0) {
      end_lane("", now);
      return;
    }
    if (fault == NULL)
      fault = flow_take(frame[4], stream, frame + FRAME_HEAD, word - FRAME_COUNTED);
    if (fault != NULL) {
      end_lane(fault, now);
      return;
    }
    at += 4 + word;
  }
  drop_input(at);
}

/* Until it is empty: a virtio port gives 4 KiB a read. */
static void read_port(uint64_t now) {
  while (input_used < INPUT_BYTES) {
    ssize_t got = read(port, input + input_used, INPUT_BYTES - input_used);
    if (got > 0)
      input_used += (size_t)got;
    else if (got < 0 && errno == EINTR)
      continue;
    else if (got < 0 && errno == EAGAIN)
      break;
    else {
      lose_port(now);
      return;
    }
  }
  if (state == STATE_STARTING)
    look_for_hello(now);
  if (state == STATE_RUNNING)
    take_frames(now);
  if (state == STATE_IDLE)
    input_used = 0;
}

void lane_event(uint32_t events, uint64_t now) {
  if (port < 0)
    return;
  if (events & EPOLLIN)
    read_port(now);
  else if (events & (EPOLLHUP | EPOLLERR))
    lose_port(now);
  if (events & EPOLLOUT)
    is_output_blocked = false;
}

static void write_port(uint64_t now) {
  while (port >= 0 && !is_output_blocked) {
    if (output_from == output_to) {
      output_from = 0;
      output_to = state == STATE_RUNNING ? flows_fill(output, OUTPUT_BYTES - OUTPUT_RESERVE) : 0;
      if (output_to == 0)
        break;
    }
    size_t length = output_to - output_from;
    ssize_t written = write(port, output + output_from, length < PORT_WRITE_BYTES ? length : PORT_WRITE_BYTES);
    if (written >= 0)
      output_from += (size_t)written;
    else if (errno == EAGAIN)
      is_output_blocked = true;
    else if (errno != EINTR) {
      lose_port(now);
      return;
    }
  }
  uint32_t events = EPOLLIN | (is_output_blocked ? EPOLLOUT : 0);
  if (port >= 0 && events != polled_events) {
    struct epoll_event event = {.events = events, .data.u64 = SOURCE_PORT};
    epoll_ctl(poller, EPOLL_CTL_MOD, port, &event);
    polled_events = events;
  }
}

/* The host hears of a port that is opened, and only of that: a lane that clients wait for in vain is opened anew. */
static void ring(uint64_t now) {
  bool is_late = state == STATE_IDLE && now >= state_since + RING_MS;
  if (state == STATE_STARTING && now >= state_since + HELLO_MS)
    become_state(STATE_IDLE, now - RING_MS);
  if ((state != STATE_CLOSED && !is_late) || now < retry_at || !flows_wait())
    return;
  close_port(now);
  if (open_lane(now) != 0)
    retry_at = now + RETRY_MS;
}

void lane_work(uint64_t now) {
  ring(now);
  write_port(now);
}

uint64_t lane_deadline(void) {
  switch (state) {
  case STATE_CLOSED:
    return flows_wait() ? retry_at : UINT64_MAX;
  case STATE_IDLE:
    return flows_wait() ? state_since + RING_MS : UINT64_MAX;
  case STATE_STARTING:
    return state_since + HELLO_MS;
  default:
    return UINT64_MAX;
  }
}
