#include "job.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#define CHUNK_BYTES 65536
#define HANDED_BYTES_MIN 65536 /* a smaller file is here sooner than a descriptor is reached */
#define PAGE_BYTES 1048576
#define ENTRY_FIXED_BYTES 42
#define NAME_MAX_BYTES 255
#define ENTRY_MAX_BYTES (ENTRY_FIXED_BYTES + NAME_MAX_BYTES + PATH_MAX_BYTES)

static unsigned char page[8 + PAGE_BYTES];

static unsigned char *put(unsigned char *at, uint64_t value, int width) {
  for (int i = width - 1; i >= 0; i--)
    *at++ = (unsigned char)(value >> (8 * i));
  return at;
}

static unsigned char *put_text(unsigned char *at, const char *text, size_t length) {
  at = put(at, length, 2);
  memcpy(at, text, length);
  return at + length;
}

static unsigned char type_of(mode_t mode) {
  switch (mode & S_IFMT) {
  case S_IFREG:
    return 'f';
  case S_IFDIR:
    return 'd';
  case S_IFLNK:
    return 'l';
  case S_IFIFO:
    return 'p';
  case S_IFSOCK:
    return 's';
  case S_IFCHR:
    return 'c';
  default:
    return 'b';
  }
}

/* Writes one entry of at most ENTRY_MAX_BYTES; NULL with errno when it cannot be described. */
static unsigned char *put_entry(unsigned char *at, int dir, const char *path, const char *name, bool follow) {
  struct stat status, target;
  char link[PATH_MAX_BYTES + 1];
  ssize_t link_length = 0;
  unsigned char target_type = 0;
  if (fstatat(dir, path, &status, follow ? 0 : AT_SYMLINK_NOFOLLOW) != 0)
    return NULL;
  if (S_ISLNK(status.st_mode)) {
    link_length = readlinkat(dir, path, link, PATH_MAX_BYTES);
    if (link_length < 0)
      return NULL;
    if (fstatat(dir, path, &target, 0) == 0)
      target_type = type_of(target.st_mode);
  }
  *at++ = type_of(status.st_mode);
  at = put(at, status.st_mode & 07777, 4);
  at = put(at, status.st_uid, 4);
  at = put(at, status.st_gid, 4);
  at = put(at, (uint64_t)status.st_size, 8);
  at = put(at, (uint64_t)status.st_mtim.tv_sec, 8);
  at = put(at, (uint64_t)status.st_mtim.tv_nsec, 4);
  *at++ = target_type;
  at = put_text(at, name, strlen(name));
  return put_text(at, link, (size_t)link_length);
}

static int answer_data(const unsigned char *bytes, size_t length) {
  if (answer(CONTROL_FD, "data %zu", length) != 0)
    return -1;
  return write_all(CONTROL_FD, bytes, length);
}

int file_stat(const struct request *request, struct failure *failure) {
  unsigned char *end = put_entry(page, AT_FDCWD, request->path, "", has_flag(request, FLAG_FOLLOW));
  if (end == NULL)
    return fail(failure, "stat", errno);
  return answer_data(page, (size_t)(end - page)) == 0 ? 0 : fail(failure, "output", errno);
}

/* Reads names until the page is full; the cookie of the last one taken is where the next begins. */
static int fill_page(int dir, uint64_t limit, uint64_t *cookie, unsigned char **end) {
  static _Alignas(struct dirent64) char names[CHUNK_BYTES];
  uint64_t count = 0;
  for (;;) {
    ssize_t got = getdents64(dir, names, sizeof names);
    if (got < 0)
      return -1;
    if (got == 0) {
      *cookie = 0;
      return 0;
    }
    for (ssize_t at = 0; at < got;) {
      const struct dirent64 *entry = (const struct dirent64 *)(names + at);
      at += entry->d_reclen;
      if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
        if (count == limit || *end + ENTRY_MAX_BYTES > page + sizeof page)
          return 0;
        unsigned char *next = put_entry(*end, dir, entry->d_name, entry->d_name, false);
        if (next == NULL && errno != ENOENT)
          return -1;
        *end = next == NULL ? *end : next;
        count += next != NULL;
      }
      *cookie = (uint64_t)entry->d_off;
    }
  }
}

int file_list(const struct request *request, struct failure *failure) {
  uint64_t cookie = request->offset;
  uint64_t limit = has_tag(request, TAG_LENGTH) ? request->length : LIST_ENTRIES_DEFAULT;
  unsigned char *end = page + 8;
  int dir = open(request->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (dir < 0)
    return fail(failure, "open", errno);
  if (cookie != 0 && lseek(dir, (off_t)cookie, SEEK_SET) < 0)
    return fail(failure, "list", errno);
  if (fill_page(dir, limit, &cookie, &end) != 0)
    return fail(failure, "list", errno);
  put(page, cookie, 8);
  return answer_data(page, (size_t)(end - page)) == 0 ? 0 : fail(failure, "output", errno);
}

static int send_window(int fd, const struct request *request, uint64_t *sent, struct failure *failure) {
  static char chunk[CHUNK_BYTES];
  uint64_t left = has_tag(request, TAG_LENGTH) ? request->length : INT64_MAX;
  if (left > INT64_MAX - request->offset)
    left = INT64_MAX - request->offset;
  while (left > 0) {
    size_t most = left < CHUNK_BYTES ? (size_t)left : CHUNK_BYTES;
    ssize_t got = pread(fd, chunk, most, (off_t)(request->offset + *sent));
    if (got < 0)
      return fail(failure, "read", errno);
    if (got == 0)
      return 0;
    if (write_all(1, chunk, (size_t)got) != 0)
      return fail(failure, "output", errno);
    *sent += (uint64_t)got;
    left -= (uint64_t)got;
  }
  return 0;
}

/* What a file of /proc says depends on who opened it: the agent, which opens it anew, is not the user. */
static bool may_hand_over(int fd, const struct request *request, const struct stat *status) {
  struct statfs system;
  return has_flag(request, FLAG_HAND_OVER) && status->st_size >= HANDED_BYTES_MIN && fstatfs(fd, &system) == 0 &&
         system.f_type != PROC_SUPER_MAGIC && system.f_type != SYSFS_MAGIC;
}

/* The agent reaches the file by our descriptor and reads it itself, which saves every byte two copies and a
 * change of process. The user's rights were proven by our open; we only hold it until the agent has it. */
static int hand_over(int fd, const struct stat *status, struct failure *failure) {
  char end;
  if (answer(CONTROL_FD, "file %lld %d", (long long)status->st_size, fd) != 0)
    return fail(failure, "output", errno);
  while (read(CONTROL_FD, &end, 1) < 0 && errno == EINTR)
    continue;
  return 0;
}

int file_read(const struct request *request, struct failure *failure) {
  struct stat status;
  uint64_t sent = 0;
  /* O_NONBLOCK: a fifo or a device that somebody put there must not hold us. */
  int fd = open(request->path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (fd < 0 || fstat(fd, &status) != 0)
    return fail(failure, "open", errno);
  if (!S_ISREG(status.st_mode))
    return fail(failure, "open", S_ISDIR(status.st_mode) ? EISDIR : EINVAL);
  if (may_hand_over(fd, request, &status))
    return hand_over(fd, &status, failure);
  if (answer(CONTROL_FD, "size %lld", (long long)status.st_size) != 0)
    return fail(failure, "output", errno);
  if (send_window(fd, request, &sent, failure) != 0)
    return -1;
  close(1);
  return answer(CONTROL_FD, "ok %llu", (unsigned long long)sent) == 0 ? 0 : fail(failure, "output", errno);
}
