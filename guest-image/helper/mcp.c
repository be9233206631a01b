#include "mcp.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define SOCKET_NAME "\0capsem/traffic"
#define READ_BYTES 65536u
#define WAITING_BYTES_MAX 1048576u /* toward either side, before the other one is read no further */
#define CALLS_MAX 4096
#define HOST_CALLS_MAX 256
#define GREETING_BYTES_MAX 65536u /* of the client's own initialize, kept for another proxy */
#define CONNECT_TRIES 40          /* while the relay is started again */
#define CONNECT_WAIT_MS 50
#define GREETING_MS 30000
#define DRAIN_MS 30000 /* a script that pipes its calls in waits for their answers; who is in a hurry sends a signal */
#define LOST "the host's proxy was lost; the call may have run"
#define UNREACHABLE "the host's proxy cannot be reached"

enum state {
  STATE_APART,    /* no connection: the next line makes one */
  STATE_GREETING, /* another proxy is told what the client told the first one; lines wait for it */
  STATE_JOINED,
};

static struct {
  enum state state;
  int socket;
  uint32_t next_stream, greeting_stream, host_stream;
  uint64_t deadline;     /* of the greeting, or of the end; 0: none */
  bool is_refused;       /* the next call is answered, not sent: its proxy could not be had */
  bool input_over, said_end;
  bool skips_line;       /* too long, up to its end */
  size_t scanned;        /* of the input, without a line's end */
  struct queue input, to_client, to_host, from_host;
  struct queue initialize, initialized; /* as the client wrote them; empty: it has not */
  struct calls calls, host_calls;
  char name[PROCESS_NAME_BYTES + 1];
} own = {.socket = -1, .calls = {.most = CALLS_MAX}, .host_calls = {.most = HOST_CALLS_MAX}};
static int output = STDOUT_FILENO;
static bool is_output_socket;
static size_t output_most = SIZE_MAX;

static uint64_t now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void answer_error(int code, struct text id, const char *words) {
  char begin[40], end[160];
  struct queue *out = &own.to_client;
  int length = snprintf(begin, sizeof begin, "{\"jsonrpc\":\"2.0\",\"id\":");
  queue_put(out, begin, (size_t)length);
  queue_put(out, id.length > 0 ? id.at : "null", id.length > 0 ? id.length : 4);
  length = snprintf(end, sizeof end, ",\"error\":{\"code\":%d,\"message\":\"%s\"}}\n", code, words);
  queue_put(out, end, (size_t)length);
}

static void set_text(struct queue *queue, struct text text) {
  queue_clear(queue);
  if (text.length <= GREETING_BYTES_MAX)
    queue_put(queue, text.at, text.length);
}

static struct text text_of(const struct queue *queue) {
  return (struct text){(const char *)queue->bytes + queue->from, queue_length(queue)};
}

/* The connection is over: what is pending is answered once, and never sent again. */
static void part(void) {
  if (own.socket >= 0)
    close(own.socket);
  own.is_refused |= own.state == STATE_GREETING;
  own.socket = -1;
  own.state = STATE_APART;
  own.deadline = 0;
  /* A client whose initialize failed begins anew. */
  for (size_t i = 0; i < own.calls.count; i++) {
    struct call *call = &own.calls.list[i];
    if (call->stream == own.greeting_stream)
      queue_clear(&own.initialize);
    answer_error(-32603, (struct text){call->id, call->id_length}, LOST);
  }
  calls_clear(&own.calls);
  calls_clear(&own.host_calls);
  queue_clear(&own.to_host);
  queue_clear(&own.from_host);
  framed_reset();
}

static int connect_once(void) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  size_t length = sizeof SOCKET_NAME - 1;
  memcpy(address.sun_path, SOCKET_NAME, length);
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0 || connect(fd, (struct sockaddr *)&address, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length)) == 0)
    return fd;
  close(fd);
  return -1;
}

static uint32_t send_request(struct text message) {
  uint32_t stream = own.next_stream;
  own.next_stream += 2;
  frame_message(&own.to_host, stream, 0, own.name, message);
  return stream;
}

/* False: there is no relay. With a client that has initialized, the new proxy is told so first. */
static bool join_host(bool greets) {
  for (int i = 0; i < CONNECT_TRIES && own.socket < 0; i++) {
    if (i > 0)
      poll(NULL, 0, CONNECT_WAIT_MS);
    own.socket = connect_once();
  }
  if (own.socket < 0)
    return false;
  own.next_stream = 1;
  own.host_stream = 0;
  own.state = STATE_JOINED;
  own.greeting_stream = 0;
  if (greets && queue_length(&own.initialize) > 0) {
    own.state = STATE_GREETING;
    own.deadline = now_ms() + GREETING_MS;
    own.greeting_stream = send_request(text_of(&own.initialize));
  }
  return true;
}

static void send_call(struct text line, const struct message *message) {
  if (own.next_stream > UINT32_MAX - 2) {
    part();
    answer_error(-32603, message->id, UNREACHABLE);
    return;
  }
  uint32_t stream = send_request(line);
  calls_add(&own.calls, stream, message->id);
  if (text_is(message->method, "\"initialize\"")) {
    set_text(&own.initialize, line);
    queue_clear(&own.initialized);
    own.greeting_stream = stream;
  }
}

static void send_notification(struct text line, const struct message *message) {
  if (text_is(message->method, "\"notifications/initialized\""))
    set_text(&own.initialized, line);
  /* A call that was cancelled gets no answer. */
  if (text_is(message->method, "\"notifications/cancelled\"") && message->cancelled.length > 0)
    calls_remove_id(&own.calls, message->cancelled);
  frame_message(&own.to_host, 0, FLAG_NOTIFICATION, own.name, line);
}

/* False: the line waits for the greeting. */
static bool take_line(struct text line) {
  struct message message;
  scan_message(line.at, line.length, &message);
  bool is_call = message.kind == MESSAGE_REQUEST;
  switch (message.kind) {
  case MESSAGE_BAD:
    answer_error(-32700, (struct text){0}, "the line is no JSON");
    return true;
  case MESSAGE_BATCH:
    answer_error(-32600, (struct text){0}, "a batch is not taken: one message a line");
    return true;
  case MESSAGE_OTHER:
    answer_error(-32600, (struct text){0}, "the line is no JSON-RPC message");
    return true;
  default:
    break;
  }
  bool begins = is_call && text_is(message.method, "\"initialize\"");
  bool is_refused = own.is_refused;
  own.is_refused &= !is_call;
  /* Answers belong to a proxy that is gone. */
  if (own.state == STATE_APART && message.kind == MESSAGE_ANSWER)
    return true;
  if (is_refused || (own.state == STATE_APART && !join_host(!begins))) {
    if (is_call)
      answer_error(-32603, message.id, UNREACHABLE);
    return true;
  }
  if (own.state == STATE_GREETING)
    return false;
  uint32_t asked = message.kind == MESSAGE_ANSWER ? calls_remove_id(&own.host_calls, message.id) : 0;
  if (is_call)
    send_call(line, &message);
  else if (message.kind == MESSAGE_NOTIFICATION)
    send_notification(line, &message);
  else if (asked != 0)
    frame_message(&own.to_host, asked, 0, own.name, line);
  return true;
}

static bool is_blank(struct text line) {
  for (size_t i = 0; i < line.length; i++)
    if (line.at[i] != ' ' && line.at[i] != '\t' && line.at[i] != '\r')
      return false;
  return true;
}

/* The next line, without its end; at the end of the input also one that has none. */
static bool next_line(struct text *line, size_t *taken) {
  struct queue *in = &own.input;
  size_t there = queue_length(in);
  const char *at = (const char *)in->bytes + in->from;
  const char *end = there > own.scanned ? memchr(at + own.scanned, '\n', there - own.scanned) : NULL;
  if (end == NULL) {
    own.scanned = there;
    if (!own.input_over || there == 0)
      return false;
    end = at + there;
  }
  *line = (struct text){at, (size_t)(end - at)};
  *taken = line->length < there ? line->length + 1 : there;
  while (line->length > 0 && line->at[line->length - 1] == '\r')
    line->length--;
  return true;
}

static void take_lines(void) {
  struct text line;
  size_t taken;
  while (own.state != STATE_GREETING && queue_length(&own.to_host) < WAITING_BYTES_MAX && next_line(&line, &taken)) {
    bool is_skipped = own.skips_line || is_blank(line);
    if (!is_skipped && line.length > MESSAGE_BYTES_MAX)
      answer_error(-32600, (struct text){0}, "the line is longer than 16777216 bytes");
    else if (!is_skipped && !take_line(line))
      return;
    own.skips_line = false;
    own.scanned = 0;
    queue_drop(&own.input, taken);
  }
  if (own.scanned > MESSAGE_BYTES_MAX && own.scanned == queue_length(&own.input)) {
    if (!own.skips_line)
      answer_error(-32600, (struct text){0}, "the line is longer than 16777216 bytes");
    own.skips_line = true;
    own.scanned = 0;
    queue_clear(&own.input);
  }
}

/* One line: JSON may have line ends only between its tokens. */
static void give_line(struct text message) {
  unsigned char *at = queue_reserve(&own.to_client, message.length + 1);
  memcpy(at, message.at, message.length);
  for (unsigned char *end = at; (end = memchr(end, '\n', message.length - (size_t)(end - at))) != NULL;)
    *end = ' ';
  at[message.length] = '\n';
  own.to_client.to += message.length + 1;
}

static void greeted(struct text answer) {
  struct message message;
  scan_message(answer.at, answer.length, &message);
  own.deadline = 0;
  if (message.kind != MESSAGE_ANSWER) {
    part();
    return;
  }
  if (queue_length(&own.initialized) > 0)
    frame_message(&own.to_host, 0, FLAG_NOTIFICATION, own.name, text_of(&own.initialized));
  own.state = STATE_JOINED;
  own.greeting_stream = 0;
}

/* False: that is nothing a host may send. */
static bool take_framed(const struct framed *framed) {
  uint32_t stream = framed->stream;
  if (stream % 2 == 1) {
    if (stream >= own.next_stream)
      return false;
    calls_remove_stream(&own.calls, stream);
    if (own.state == STATE_GREETING && stream == own.greeting_stream) {
      greeted(framed->message);
      return true;
    }
  } else if (stream > 0) {
    struct message message;
    if (stream <= own.host_stream)
      return false;
    own.host_stream = stream;
    scan_message(framed->message.at, framed->message.length, &message);
    if (message.kind != MESSAGE_REQUEST)
      return false;
    calls_add(&own.host_calls, stream, message.id);
  }
  if (framed->message.length > 0)
    give_line(framed->message);
  return true;
}

static void read_host(void) {
  unsigned char *at = queue_reserve(&own.from_host, READ_BYTES);
  ssize_t got = recv(own.socket, at, READ_BYTES, MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR))
    return;
  if (got <= 0) {
    part();
    return;
  }
  own.from_host.to += (size_t)got;
  struct framed framed;
  int result;
  while ((result = framed_next(&own.from_host, &framed)) > 0) {
    if (!take_framed(&framed))
      result = -1;
    if (result < 0 || own.socket < 0)
      break;
  }
  if (result < 0)
    part();
}

static void read_input(void) {
  unsigned char *at = queue_reserve(&own.input, READ_BYTES);
  ssize_t got = read(STDIN_FILENO, at, READ_BYTES);
  if (got < 0 && (errno == EAGAIN || errno == EINTR))
    return;
  if (got > 0)
    own.input.to += (size_t)got;
  else
    own.input_over = true;
}

static void write_host(void) {
  while (own.socket >= 0 && queue_length(&own.to_host) > 0) {
    ssize_t sent = send(own.socket, own.to_host.bytes + own.to_host.from, queue_length(&own.to_host), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR)
      continue;
    if (sent < 0 && errno == EAGAIN)
      return;
    if (sent < 0) {
      /* What the host still said comes first: the next read ends it. */
      queue_clear(&own.to_host);
      return;
    }
    queue_drop(&own.to_host, (size_t)sent);
  }
  if (own.said_end && own.socket >= 0)
    shutdown(own.socket, SHUT_WR);
}

/* Ends the process when nobody reads. A pipe that we could not open anew takes so much without a wait, once a poll. */
static void write_client(bool is_ready) {
  while (queue_length(&own.to_client) > 0 && (output_most == SIZE_MAX || is_ready)) {
    size_t length = queue_length(&own.to_client) < output_most ? queue_length(&own.to_client) : output_most;
    const unsigned char *at = own.to_client.bytes + own.to_client.from;
    ssize_t written = is_output_socket ? send(output, at, length, MSG_DONTWAIT | MSG_NOSIGNAL) : write(output, at, length);
    if (written < 0 && errno == EINTR)
      continue;
    if (written < 0 && errno == EAGAIN)
      return;
    if (written < 0)
      _exit(0);
    queue_drop(&own.to_client, (size_t)written);
    is_ready = false;
  }
}

/* Never by the flag of the descriptor that we share with others. */
static void prepare_output(void) {
  struct stat status;
  if (fstat(STDOUT_FILENO, &status) != 0)
    _exit(2);
  is_output_socket = S_ISSOCK(status.st_mode);
  if (!S_ISFIFO(status.st_mode))
    return;
  int fd = open("/proc/self/fd/1", O_WRONLY | O_NONBLOCK | O_CLOEXEC);
  if (fd >= 0)
    output = fd;
  else
    output_most = 4096; /* PIPE_BUF: a pipe that polls as ready takes so much */
}

/* All lines are through: the host is told, and what it still answers is passed on for a while. True: that is all. */
static bool finish(void) {
  if (!own.input_over || own.state == STATE_GREETING || queue_length(&own.input) > 0)
    return false;
  if (own.socket >= 0 && !own.said_end) {
    queue_put(&own.to_host, "\0\0\0\0", 4);
    own.said_end = true;
    own.deadline = now_ms() + DRAIN_MS;
  }
  if (own.deadline == 0)
    own.deadline = now_ms() + DRAIN_MS;
  bool is_idle = own.socket < 0 || (own.calls.count == 0 && queue_length(&own.to_host) == 0);
  return (is_idle && queue_length(&own.to_client) == 0) || now_ms() >= own.deadline;
}

static int timeout_now(void) {
  uint64_t now = now_ms();
  return own.deadline == 0 ? -1 : own.deadline <= now ? 0 : (int)(own.deadline - now);
}

static void wait_once(void) {
  bool reads_input = !own.input_over && own.state != STATE_GREETING && queue_length(&own.to_host) < WAITING_BYTES_MAX &&
                     queue_length(&own.to_client) < WAITING_BYTES_MAX * 32;
  bool reads_host = own.socket >= 0 && queue_length(&own.to_client) < WAITING_BYTES_MAX;
  short host_events = (short)((reads_host ? POLLIN : 0) | (queue_length(&own.to_host) > 0 ? POLLOUT : 0));
  struct pollfd fds[] = {
      {.fd = reads_input ? STDIN_FILENO : -1, .events = POLLIN},
      {.fd = host_events != 0 ? own.socket : -1, .events = host_events},
      {.fd = output, .events = queue_length(&own.to_client) > 0 ? POLLOUT : 0},
  };
  if (poll(fds, 3, timeout_now()) < 0)
    return;
  if (fds[1].revents & (POLLIN | POLLHUP | POLLERR))
    read_host();
  if (fds[0].revents != 0)
    read_input();
  write_client((fds[2].revents & POLLOUT) != 0);
  if (fds[2].revents & (POLLERR | POLLHUP | POLLNVAL))
    _exit(0); /* nobody reads what we say */
}

static void leave(int signal_number) {
  (void)signal_number;
  _exit(0);
}

static void find_name(void) {
  const char *given = getenv("CAPSEM_PROCESS_NAME");
  size_t length = given == NULL ? 0 : name_clean(given, strlen(given), own.name);
  if (length == 0 && name_of_process(getppid(), own.name, NULL) == 0)
    strcpy(own.name, "unknown");
}

int mcp_main(int argc) {
  static const char usage[] = "usage: " CLIENT_NAME "\nMCP on stdin and stdout, one message a line. It takes no argument.\n";
  if (argc != 1)
    return write_all(STDERR_FILENO, usage, sizeof usage - 1) == 0 ? 2 : 3;
  signal(SIGINT, leave);
  signal(SIGTERM, leave);
  prepare_output();
  find_name();
  while (!finish()) {
    wait_once();
    if (own.state == STATE_GREETING && now_ms() >= own.deadline)
      part();
    take_lines();
    write_host();
    write_client(false);
  }
  return 0;
}
