#include "helper.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int fail(struct failure *failure, const char *step, int err) {
  failure->step = step;
  failure->err = err;
  return -1;
}

/* MSG_NOSIGNAL is not enough where the peer is a pipe: every role blocks SIGPIPE. */
int write_all(int fd, const void *bytes, size_t length) {
  const char *at = bytes;
  while (length > 0) {
    ssize_t written = write(fd, at, length);
    if (written < 0) {
      if (errno == EINTR)
        continue;
      return -1;
    }
    at += written;
    length -= (size_t)written;
  }
  return 0;
}

int answer(int fd, const char *format, ...) {
  char line[512];
  va_list arguments;
  va_start(arguments, format);
  int length = vsnprintf(line, sizeof line - 1, format, arguments);
  va_end(arguments);
  if (length < 0)
    return -1;
  if ((size_t)length > sizeof line - 2)
    length = sizeof line - 2;
  line[length] = '\n';
  return write_all(fd, line, (size_t)length + 1);
}

int answer_failure(int fd, const struct failure *failure) {
  const char *name = strerrorname_np(failure->err);
  return answer(fd, "error %s %s %s", failure->step, name ? name : "EUNKNOWN", strerror(failure->err));
}

/* Only plain digits: no sign, no space, no leading zero but "0" itself. */
bool parse_u64(const char *text, uint64_t min, uint64_t max, uint64_t *value) {
  uint64_t sum = 0;
  if (text[0] == '\0' || (text[0] == '0' && text[1] != '\0'))
    return false;
  for (const char *at = text; *at != '\0'; at++) {
    if (*at < '0' || *at > '9')
      return false;
    unsigned digit = (unsigned)(*at - '0');
    if (sum > (UINT64_MAX - digit) / 10)
      return false;
    sum = sum * 10 + digit;
  }
  if (sum < min || sum > max)
    return false;
  *value = sum;
  return true;
}

bool hostname_valid(const char *text) {
  size_t length = strnlen(text, HOSTNAME_MAX_BYTES + 1);
  if (length == 0 || length > HOSTNAME_MAX_BYTES || text[0] == '-' || text[length - 1] == '-')
    return false;
  for (size_t i = 0; i < length; i++) {
    char c = text[i];
    bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (!letter && !(c >= '0' && c <= '9') && c != '-')
      return false;
  }
  return true;
}

bool cgroup_path_valid(const char *path) {
  size_t prefix = strlen(CGROUP_ROOT);
  size_t length = strnlen(path, CGROUP_MAX_BYTES + 1);
  if (length <= prefix || length > CGROUP_MAX_BYTES || strncmp(path, CGROUP_ROOT, prefix) != 0)
    return false;
  return strstr(path, "..") == NULL && strstr(path, "//") == NULL && path[length - 1] != '/';
}

/* An own regular file is rewritten in place, so that a bind of it shows the new text; anything
 * else that lies there (a link, a second name) is taken away and never followed. */
static int open_text_file(int dir, const char *name) {
  struct stat status;
  int fd = openat(dir, name, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (fd >= 0) {
    if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_nlink == 1 && ftruncate(fd, 0) == 0)
      return fd;
    close(fd);
  }
  if (unlinkat(dir, name, 0) != 0 && errno != ENOENT)
    return -1;
  return openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
}

int write_file_at(int dir, const char *name, const char *text, mode_t mode) {
  int fd = open_text_file(dir, name);
  if (fd < 0)
    return -1;
  int result = write_all(fd, text, strlen(text));
  if (result == 0)
    result = fchmod(fd, mode);
  int saved = errno;
  close(fd);
  errno = saved;
  return result;
}
