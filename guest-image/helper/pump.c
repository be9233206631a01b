#include "job.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define BUFFER_BYTES 65536
#define LINE_MAX_BYTES 64
#define LAST_TERMINAL_OUTPUT_MS 100
#define LAST_TERMINAL_OUTPUT_BYTES 1048576 /* more than a pty holds: only a background process gets there */
#define DISCARD_PAUSE_NANOS 10000000L /* the workload must not drive our share of the processor */
#define UNBOUNDED INT64_MAX

enum { INPUT, OUTPUT, ERRORS, STREAMS };

struct stream {
  int from, to; /* -1 when closed */
  size_t start, end;
  int64_t quota; /* bytes still to be read: bounded once the program has ended */
  bool held;     /* another process still has the writing end */
  char buffer[BUFFER_BYTES];
};

struct pump {
  struct child *child;
  int signals;
  bool ended, closed, orphaned, broken; /* ended: reaped; closed: fd 3; broken: a bad line on it */
  int status;
  size_t line_used;
  char line[LINE_MAX_BYTES];
  struct stream streams[STREAMS];
};

static struct pump state; /* zero pages until used, so that a waiting zygote stays small */

static void close_fd(int *fd) {
  if (*fd >= 0)
    close(*fd);
  *fd = -1;
}

/* The master serves both ways, so it is never closed for one of them. */
static void end_reading(struct pump *pump, int index) {
  struct stream *stream = &pump->streams[index];
  bool terminal = pump->child->terminal;
  if (terminal && index != INPUT) {
    stream->from = -1;
    return;
  }
  close_fd(&stream->from);
  if (terminal) {
    stream->buffer[0] = end_of_input_of(pump->child->input);
    stream->start = 0;
    stream->end = 1;
  }
}

static void fill(struct pump *pump, int index) {
  struct stream *stream = &pump->streams[index];
  size_t most = stream->quota < BUFFER_BYTES ? (size_t)stream->quota : BUFFER_BYTES;
  ssize_t got = read(stream->from, stream->buffer, most);
  if (got < 0 && (errno == EINTR || errno == EAGAIN))
    return;
  if (got <= 0) /* a terminal whose last user left reads as EIO */
    return end_reading(pump, index);
  stream->start = 0;
  stream->end = (size_t)got;
  if (stream->quota != UNBOUNDED)
    stream->quota -= got;
}

/* Nobody takes the bytes any more: the writer gets EPIPE, as it would without us between. */
static void abandon(struct pump *pump, int index) {
  struct stream *stream = &pump->streams[index];
  stream->start = stream->end = 0;
  if (pump->child->terminal && index != INPUT)
    stream->from = -1;
  else
    close_fd(&stream->from);
  if (pump->child->terminal && index == INPUT)
    stream->to = -1;
  else
    close_fd(&stream->to);
}

static void flush(struct pump *pump, int index) {
  struct stream *stream = &pump->streams[index];
  ssize_t put = write(stream->to, stream->buffer + stream->start, stream->end - stream->start);
  if (put < 0 && (errno == EINTR || errno == EAGAIN))
    return;
  if (put < 0)
    return abandon(pump, index);
  stream->start += (size_t)put;
}

static void run_line(struct pump *pump, char *line) {
  uint64_t first, second;
  char *space = strchr(line, ' ');
  char *third = space == NULL ? NULL : strchr(space + 1, ' ');
  if (third != NULL)
    *third++ = '\0';
  if (strncmp(line, "kill ", 5) == 0 && third == NULL && parse_u64(line + 5, 1, 64, &first)) {
    if (!pump->ended) /* afterwards the number may belong to another */
      kill(-pump->child->pid, (int)first);
  } else if (strncmp(line, "resize ", 7) == 0 && third != NULL &&
             parse_u64(line + 7, 1, TERMINAL_SIDE_MAX, &first) &&
             parse_u64(third, 1, TERMINAL_SIDE_MAX, &second)) {
    if (pump->child->terminal && !pump->ended)
      resize_terminal(pump->child->output, (uint16_t)first, (uint16_t)second);
  } else {
    pump->broken = true;
  }
}

static void read_control(struct pump *pump) {
  ssize_t got = read(CONTROL_FD, pump->line + pump->line_used, LINE_MAX_BYTES - pump->line_used);
  if (got < 0 && (errno == EINTR || errno == EAGAIN))
    return;
  if (got <= 0) {
    pump->closed = true;
    return;
  }
  pump->line_used += (size_t)got;
  char *start = pump->line, *end;
  while (!pump->broken && (end = memchr(start, '\n', (size_t)(pump->line + pump->line_used - start))) != NULL) {
    *end = '\0';
    pump->broken = strlen(start) != (size_t)(end - start);
    if (!pump->broken)
      run_line(pump, start);
    start = end + 1;
  }
  pump->line_used = (size_t)(pump->line + pump->line_used - start);
  memmove(pump->line, start, pump->line_used);
  pump->broken = pump->broken || pump->line_used == LINE_MAX_BYTES;
}

/* What the program wrote before its end is in the pipes now; later bytes are others'. */
static void note_end(struct pump *pump) {
  pump->ended = true;
  close_fd(&pump->streams[INPUT].from);
  if (!pump->child->terminal)
    close_fd(&pump->streams[INPUT].to);
  pump->streams[INPUT].to = -1;
  pump->streams[OUTPUT].quota = LAST_TERMINAL_OUTPUT_BYTES;
  for (int i = OUTPUT; i <= ERRORS && !pump->child->terminal; i++) {
    int waiting = 0;
    if (pump->streams[i].from >= 0 && ioctl(pump->streams[i].from, FIONREAD, &waiting) == 0)
      pump->streams[i].quota = waiting;
  }
}

static void read_signals(struct pump *pump) {
  struct signalfd_siginfo info;
  while (read(pump->signals, &info, sizeof info) == (ssize_t)sizeof info) {
    if (info.ssi_signo == SIGTERM)
      pump->orphaned = true;
    if (info.ssi_signo == SIGCHLD && !pump->ended &&
        waitpid(pump->child->pid, &pump->status, WNOHANG) == pump->child->pid)
      note_end(pump);
  }
}

/* A stream that has used up its quota ends here, or goes on to the end when nobody holds it. */
static void settle(const struct pump *pump, struct stream *stream) {
  if (stream->from < 0 || stream->quota > 0 || stream->held)
    return;
  if (pump->child->terminal) {
    stream->from = -1;
    return;
  }
  struct pollfd pipe_end = {.fd = stream->from, .events = POLLIN};
  if (poll(&pipe_end, 1, 0) >= 0 && (pipe_end.revents & POLLHUP) != 0)
    stream->quota = UNBOUNDED;
  else
    stream->held = true;
}

static bool drained(struct pump *pump) {
  for (int i = OUTPUT; i <= ERRORS; i++) {
    struct stream *stream = &pump->streams[i];
    if (stream->start != stream->end)
      return false;
    settle(pump, stream);
    if (stream->from >= 0 && !stream->held)
      return false;
  }
  return true;
}

static int wait_once(struct pump *pump) {
  struct pollfd set[2 + STREAMS] = {{.fd = CONTROL_FD, .events = POLLIN}, {.fd = pump->signals, .events = POLLIN}};
  for (int i = 0; i < STREAMS; i++) {
    struct stream *stream = &pump->streams[i];
    bool full = stream->start != stream->end;
    bool readable = stream->from >= 0 && stream->to >= 0 && stream->quota > 0;
    set[2 + i].fd = full ? stream->to : readable ? stream->from : -1;
    set[2 + i].events = full ? POLLOUT : POLLIN;
  }
  int timeout = pump->ended && pump->child->terminal ? LAST_TERMINAL_OUTPUT_MS : -1;
  int ready = poll(set, 2 + STREAMS, timeout);
  if (ready == 0) { /* a background process keeps the terminal open and says nothing */
    if (pump->streams[OUTPUT].start == pump->streams[OUTPUT].end)
      pump->streams[OUTPUT].from = -1;
    return 0;
  }
  if (ready < 0)
    return errno == EINTR ? 0 : -1;
  for (int i = 0; i < STREAMS; i++) {
    if (set[2 + i].fd < 0 || set[2 + i].revents == 0)
      continue;
    if (set[2 + i].events == POLLOUT)
      flush(pump, i);
    else
      fill(pump, i);
  }
  if (pump->streams[INPUT].from < 0 && pump->streams[INPUT].start == pump->streams[INPUT].end &&
      !pump->child->terminal)
    close_fd(&pump->streams[INPUT].to);
  if (set[0].revents != 0)
    read_control(pump);
  if (set[1].revents != 0)
    read_signals(pump);
  return 0;
}

static int answer_end(const struct pump *pump, bool held) {
  const char *tail = held ? " held" : "";
  if (WIFSIGNALED(pump->status))
    return answer(CONTROL_FD, "signal %d%s%s", WTERMSIG(pump->status),
                  WCOREDUMP(pump->status) ? " core" : "", tail);
  return answer(CONTROL_FD, "exit %d%s", WEXITSTATUS(pump->status), tail);
}

/* Background processes keep a reader, so that their next write does not kill them. */
static void discard_held(struct pump *pump) {
  struct pollfd set[4] = {{.fd = CONTROL_FD, .events = POLLIN}, {.fd = pump->signals, .events = POLLIN}};
  for (int i = OUTPUT; i <= ERRORS; i++)
    set[1 + i] = (struct pollfd){.fd = pump->streams[i].held ? pump->streams[i].from : -1, .events = POLLIN};
  while (set[2].fd >= 0 || set[3].fd >= 0) {
    if (poll(set, 4, -1) < 0 && errno != EINTR)
      return;
    if (set[1].revents != 0)
      read_signals(pump);
    if (pump->orphaned || (set[0].revents != 0 && read(CONTROL_FD, pump->line, LINE_MAX_BYTES) <= 0))
      return;
    struct timespec pause = {.tv_nsec = DISCARD_PAUSE_NANOS};
    nanosleep(&pause, NULL);
    for (int i = 2; i < 4; i++)
      if (set[i].fd >= 0 && set[i].revents != 0 && read(set[i].fd, state.streams[0].buffer, BUFFER_BYTES) == 0)
        set[i].fd = -1;
  }
}

static void kill_program(struct pump *pump) {
  if (pump->ended)
    return;
  kill(-pump->child->pid, SIGKILL);
  while (waitpid(pump->child->pid, &pump->status, 0) < 0 && errno == EINTR)
    continue;
}

int pump(struct child *child, int signals, struct failure *failure) {
  struct pump *pump = &state;
  int ends[STREAMS][2] = {{0, child->input}, {child->output, 1}, {child->errors, 2}};
  pump->child = child;
  pump->signals = signals;
  for (int i = 0; i < STREAMS; i++) {
    pump->streams[i].from = ends[i][0];
    pump->streams[i].to = ends[i][1];
    pump->streams[i].quota = UNBOUNDED;
    if (fcntl(i, F_SETFL, O_NONBLOCK) != 0)
      return kill_program(pump), fail(failure, "control", errno);
  }
  while (!pump->ended || !drained(pump)) {
    if (wait_once(pump) != 0)
      return kill_program(pump), fail(failure, "control", errno);
    if (pump->closed || pump->orphaned || pump->broken) {
      kill_program(pump);
      return fail(failure, "control", pump->broken ? EPROTO : ECANCELED);
    }
  }
  bool held = pump->streams[OUTPUT].held || pump->streams[ERRORS].held;
  close(1);
  close(2);
  if (answer_end(pump, held) == 0 && held)
    discard_held(pump);
  return 0;
}
