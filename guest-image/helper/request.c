#include "job.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define BIT(tag) (1u << (tag))
#define ALWAYS (BIT(TAG_OP) | BIT(TAG_INIT) | BIT(TAG_UID) | BIT(TAG_GID))
#define ANYWHERE (BIT(TAG_CGROUP) | BIT(TAG_CWD) | BIT(TAG_GROUP) | BIT(TAG_FLAGS))

struct op_rule {
  uint32_t needed;
  uint32_t taken;
  uint32_t flags;
};

static const struct op_rule op_rules[OP_END] = {
    [OP_EXEC] = {BIT(TAG_ARG), BIT(TAG_ENV) | BIT(TAG_COLS) | BIT(TAG_ROWS), FLAG_TERMINAL},
    [OP_STAT] = {BIT(TAG_PATH), 0, FLAG_FOLLOW},
    [OP_LIST] = {BIT(TAG_PATH), BIT(TAG_OFFSET) | BIT(TAG_LENGTH), 0},
    [OP_READ] = {BIT(TAG_PATH), BIT(TAG_OFFSET) | BIT(TAG_LENGTH), FLAG_HAND_OVER},
    [OP_WRITE] = {BIT(TAG_PATH), BIT(TAG_OFFSET) | BIT(TAG_LENGTH) | BIT(TAG_MODE),
                  FLAG_PARENTS | FLAG_IN_PLACE | FLAG_CREATE | FLAG_TRUNCATE | FLAG_EXCLUSIVE | FLAG_SYNC},
    [OP_MKDIR] = {BIT(TAG_PATH), BIT(TAG_MODE), FLAG_PARENTS},
    [OP_RENAME] = {BIT(TAG_PATH) | BIT(TAG_PATH2), 0, FLAG_EXCLUSIVE},
    [OP_REMOVE] = {BIT(TAG_PATH), 0, FLAG_RECURSIVE},
};

struct tag_rule {
  uint32_t min_bytes, max_bytes;
  bool text;
};

/* An argument or variable may be as long as the request; execve sets the real bound (E2BIG). */
static const struct tag_rule tag_rules[TAG_END] = {
    [TAG_OP] = {1, 1, false},        [TAG_INIT] = {4, 4, false},
    [TAG_CGROUP] = {1, CGROUP_MAX_BYTES, true},
    [TAG_ARG] = {0, REQUEST_MAX_BYTES, true},
    [TAG_ENV] = {2, REQUEST_MAX_BYTES, true},
    [TAG_CWD] = {1, PATH_MAX_BYTES, true},
    [TAG_UID] = {4, 4, false},       [TAG_GID] = {4, 4, false},
    [TAG_GROUP] = {4, 4, false},     [TAG_FLAGS] = {4, 4, false},
    [TAG_COLS] = {4, 4, false},      [TAG_ROWS] = {4, 4, false},
    [TAG_PATH] = {1, PATH_MAX_BYTES, true},
    [TAG_PATH2] = {1, PATH_MAX_BYTES, true},
    [TAG_OFFSET] = {8, 8, false},    [TAG_LENGTH] = {8, 8, false},
    [TAG_MODE] = {4, 4, false},
};

static uint64_t integer_of(const unsigned char *bytes, size_t length) {
  uint64_t value = 0;
  for (size_t i = 0; i < length; i++)
    value = value << 8 | bytes[i];
  return value;
}

/* Ends a text in place. The byte after it is the next tag, which the caller has copied. */
static bool end_text(char *bytes, uint32_t length) {
  if (memchr(bytes, '\0', length) != NULL)
    return false;
  bytes[length] = '\0';
  return true;
}

static bool set_text(struct request *request, uint8_t tag, char *text) {
  switch (tag) {
  case TAG_CGROUP:
    request->cgroup = text;
    return cgroup_path_valid(text);
  case TAG_CWD:
    request->cwd = text;
    return text[0] == '/';
  case TAG_PATH:
    request->path = text;
    return true;
  case TAG_PATH2:
    request->path2 = text;
    return true;
  case TAG_ARG:
    if (request->arg_count == ARGS_MAX)
      return false;
    request->args[request->arg_count++] = text;
    return true;
  case TAG_ENV:
    if (request->env_count == ENV_MAX || text[0] == '=' || strchr(text, '=') == NULL)
      return false;
    request->env[request->env_count++] = text;
    return true;
  default:
    return false;
  }
}

static bool set_u32(uint32_t *field, uint64_t value, uint64_t min, uint64_t max) {
  *field = (uint32_t)value;
  return value >= min && value <= max;
}

static bool set_integer(struct request *request, uint8_t tag, uint64_t value) {
  switch (tag) {
  case TAG_OP:
    request->op = (uint8_t)value;
    return value >= OP_EXEC && value < OP_END;
  case TAG_INIT:
    return set_u32(&request->init, value, 2, PID_MAX);
  case TAG_UID:
    return set_u32(&request->uid, value, 0, UINT32_MAX - 1);
  case TAG_GID:
    return set_u32(&request->gid, value, 0, UINT32_MAX - 1);
  case TAG_GROUP:
    if (request->group_count == GROUPS_MAX)
      return false;
    return set_u32(&request->groups[request->group_count++], value, 0, UINT32_MAX - 1);
  case TAG_FLAGS:
    return set_u32(&request->flags, value, 0, UINT32_MAX);
  case TAG_COLS:
    return set_u32(&request->cols, value, 1, TERMINAL_SIDE_MAX);
  case TAG_ROWS:
    return set_u32(&request->rows, value, 1, TERMINAL_SIDE_MAX);
  case TAG_MODE:
    return set_u32(&request->mode, value, 0, 0777);
  case TAG_OFFSET:
    request->offset = value;
    return value <= INT64_MAX;
  case TAG_LENGTH:
    request->length = value;
    return value <= INT64_MAX;
  default:
    return false;
  }
}

/* bytes[length] is writable: the buffer is one byte longer than the request. */
static bool decode(struct request *request, char *bytes, uint32_t length) {
  uint32_t at = 0;
  uint8_t tag = (uint8_t)bytes[0];
  while (at < length) {
    if (length - at < 5 || tag == 0 || tag >= TAG_END)
      return false;
    const struct tag_rule *rule = &tag_rules[tag];
    uint32_t size = (uint32_t)integer_of((unsigned char *)bytes + at + 1, 4);
    if (size > length - at - 5 || size < rule->min_bytes || size > rule->max_bytes)
      return false;
    bool repeats = tag == TAG_ARG || tag == TAG_ENV || tag == TAG_GROUP;
    if (has_tag(request, tag) && !repeats)
      return false;
    request->present |= BIT(tag);
    char *value = bytes + at + 5;
    at += 5 + size;
    uint8_t next = at < length ? (uint8_t)bytes[at] : 0;
    bool valid = rule->text ? end_text(value, size) && set_text(request, tag, value)
                            : set_integer(request, tag, integer_of((unsigned char *)value, size));
    if (!valid)
      return false;
    tag = next;
  }
  return true;
}

static bool fits_op(const struct request *request) {
  if ((request->present & ALWAYS) != ALWAYS)
    return false;
  const struct op_rule *rule = &op_rules[request->op];
  if ((request->present & rule->needed) != rule->needed || (request->flags & ~rule->flags) != 0)
    return false;
  if ((request->present & ~(ALWAYS | ANYWHERE | rule->needed | rule->taken)) != 0)
    return false;
  bool sized = has_tag(request, TAG_COLS) || has_tag(request, TAG_ROWS);
  if (request->op == OP_EXEC && sized)
    return has_flag(request, FLAG_TERMINAL) && has_tag(request, TAG_COLS) && has_tag(request, TAG_ROWS);
  if (request->op == OP_LIST && has_tag(request, TAG_LENGTH))
    return request->length >= 1 && request->length <= LIST_ENTRIES_MAX;
  if (request->op == OP_WRITE && !has_flag(request, FLAG_IN_PLACE))
    return !has_tag(request, TAG_OFFSET) && (request->flags & (FLAG_CREATE | FLAG_TRUNCATE)) == 0;
  if (request->op == OP_WRITE && has_flag(request, FLAG_EXCLUSIVE))
    return has_flag(request, FLAG_CREATE);
  return true;
}

/* 1 = all of it, 0 = the end before the first byte, -1 = the end or an error inside */
static int read_exactly(int fd, void *bytes, size_t length) {
  size_t at = 0;
  while (at < length) {
    ssize_t got = read(fd, (char *)bytes + at, length - at);
    if (got < 0 && errno == EINTR)
      continue;
    if (got <= 0)
      return got == 0 && at == 0 ? 0 : -1;
    at += (size_t)got;
  }
  return 1;
}

int receive_request(int fd, struct request *request, struct failure *failure) {
  static char *args[ARGS_MAX + 1], *env[ENV_MAX + 1];
  unsigned char header[4];
  memset(request, 0, sizeof *request);
  request->args = args;
  request->env = env;
  request->cols = 80;
  request->rows = 24;
  request->cwd = "/";
  int got = read_exactly(fd, header, sizeof header);
  if (got == 0)
    return 0;
  uint32_t length = got < 0 ? 0 : (uint32_t)integer_of(header, sizeof header);
  if (length < REQUEST_MIN_BYTES || length > REQUEST_MAX_BYTES)
    return fail(failure, "request", got < 0 ? ENODATA : EMSGSIZE);
  char *bytes = mmap(NULL, length + 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (bytes == MAP_FAILED)
    return fail(failure, "request", errno);
  if (read_exactly(fd, bytes, length) != 1)
    return fail(failure, "request", ENODATA);
  if (!decode(request, bytes, length) || !fits_op(request))
    return fail(failure, "request", EINVAL);
  return 1;
}
