#include "relay.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FRAME_PREFIX_BYTES 9 /* u32 length, u8 type, u32 stream */
#define FRAME_COUNTED_BYTES 5
#define FRAME_TYPE_DATA 3

/* A body holds its place until its report has left: every order makes one report, so these bound each other. */
struct body {
  bool is_used;
  uint32_t body, stream, credit;
  int fd;
  uint64_t offset, left, sent;
};

static struct body bodies[BODIES_MAX];
static size_t next_turn;
static unsigned char reports[BODIES_MAX * REPORT_BYTES];
static size_t reports_length;

static void report(uint32_t body, uint64_t sent, uint32_t credit, int err) {
  unsigned char *at = reports + reports_length;
  put_u32(at, body);
  put_u32(at + 4, (uint32_t)(sent >> 32));
  put_u32(at + 8, (uint32_t)sent);
  put_u32(at + 12, credit);
  put_u32(at + 16, (uint32_t)err);
  reports_length += REPORT_BYTES;
}

static void finish(struct body *body, int err) {
  close(body->fd);
  body->is_used = false;
  report(body->body, body->sent, body->credit, err);
}

static struct body *find(uint32_t number) {
  for (size_t i = 0; i < BODIES_MAX; i++)
    if (bodies[i].is_used && bodies[i].body == number)
      return &bodies[i];
  return NULL;
}

/* The agent holds the file open until it has our report, so its descriptor names no other one. */
static int open_of_agent(uint32_t fd) {
  char path[48];
  struct stat status;
  snprintf(path, sizeof path, "/proc/%d/fd/%u", (int)getppid(), fd);
  int file = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (file < 0)
    return -1;
  if (fstat(file, &status) == 0 && S_ISREG(status.st_mode))
    return file;
  close(file);
  return errno = EINVAL, -1;
}

void body_start(const struct body_order *order) {
  struct body *free_place = NULL;
  size_t waiting = reports_length / REPORT_BYTES;
  for (size_t i = 0; i < BODIES_MAX; i++) {
    if (bodies[i].is_used)
      waiting++;
    else
      free_place = &bodies[i];
  }
  /* The agent starts fewer: there is no room for a report, so the lane ends. */
  if (free_place == NULL || waiting >= BODIES_MAX)
    _exit(2);
  int fd = order->credit > CREDIT_MAX ? (errno = EPROTO, -1) : open_of_agent(order->fd);
  if (fd < 0) {
    report(order->body, 0, order->credit, errno);
    return;
  }
  *free_place = (struct body){.is_used = true, .body = order->body, .stream = order->stream, .fd = fd,
                              .credit = order->credit, .offset = order->offset, .left = order->length};
}

static void grant(struct body *body, uint32_t bytes) {
  if (bytes > CREDIT_MAX - body->credit)
    finish(body, EPROTO);
  else
    body->credit += bytes;
}

void body_grant(uint32_t number, uint32_t bytes) {
  struct body *body = find(number);
  if (body != NULL) /* else it was over before */
    grant(body, bytes);
}

static struct body *find_stream(uint32_t stream) {
  for (size_t i = 0; i < BODIES_MAX; i++)
    if (bodies[i].is_used && bodies[i].stream == stream)
      return &bodies[i];
  return NULL;
}

bool body_sends(uint32_t stream) {
  return find_stream(stream) != NULL;
}

void body_grant_stream(uint32_t stream, uint32_t bytes) {
  grant(find_stream(stream), bytes);
}

bool bodies_are_none(void) {
  for (size_t i = 0; i < BODIES_MAX; i++)
    if (bodies[i].is_used)
      return false;
  return true;
}

void body_stop(uint32_t number) {
  struct body *body = find(number);
  if (body != NULL)
    finish(body, ECANCELED);
}

static size_t frame_of(struct body *body, unsigned char *frame) {
  size_t most = PORT_WRITE_BYTES - FRAME_PREFIX_BYTES;
  if (most > body->credit)
    most = body->credit;
  if (most > body->left)
    most = (size_t)body->left;
  ssize_t got = 0;
  while (most > 0 && (got = pread(body->fd, frame + FRAME_PREFIX_BYTES, most, (off_t)body->offset)) < 0 && errno == EINTR)
    continue;
  if (got <= 0) {
    finish(body, got < 0 ? errno : 0);
    return 0;
  }
  put_u32(frame, FRAME_COUNTED_BYTES + (uint32_t)got);
  frame[4] = FRAME_TYPE_DATA;
  put_u32(frame + 5, body->stream);
  body->credit -= (uint32_t)got;
  body->offset += (uint64_t)got;
  body->left -= (uint64_t)got;
  body->sent += (uint64_t)got;
  return FRAME_PREFIX_BYTES + (size_t)got;
}

size_t body_frame(unsigned char *frame) {
  for (size_t tried = 0; tried < BODIES_MAX; tried++) {
    struct body *body = &bodies[next_turn];
    next_turn = (next_turn + 1) % BODIES_MAX;
    if (!body->is_used || (body->credit == 0 && body->left > 0))
      continue;
    size_t length = frame_of(body, frame);
    if (length > 0)
      return length;
  }
  return 0;
}

const unsigned char *body_reports(size_t *length) {
  *length = reports_length;
  return reports;
}

void body_reports_taken(size_t length) {
  reports_length -= length;
  memmove(reports, reports + length, reports_length);
}
