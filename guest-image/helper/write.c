#include "job.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHUNK_BYTES 65536
#define MODE_DEFAULT 0644
#define PARENT_MODE 0755
#define COMMIT "commit\n"

struct target {
  char path[PATH_MAX_BYTES + 1]; /* cut at its last slash: the directory */
  const char *name;
  int dir;
  bool exists;
  struct stat status;
  char temporary[32];
};

/* Takes all of stdin, at offset and beyond. */
static int receive(int fd, const struct request *request, uint64_t offset, uint64_t *received,
                   struct failure *failure) {
  static char chunk[CHUNK_BYTES];
  for (;;) {
    ssize_t got = read(0, chunk, sizeof chunk);
    if (got < 0 && errno == EINTR)
      continue;
    if (got < 0)
      return fail(failure, "input", errno);
    if (got == 0)
      return 0;
    if (has_tag(request, TAG_LENGTH) && *received + (uint64_t)got > request->length)
      return fail(failure, "input", EFBIG);
    for (ssize_t put = 0; put < got;) {
      ssize_t written = pwrite(fd, chunk + put, (size_t)(got - put), (off_t)(offset + *received));
      if (written < 0)
        return fail(failure, "write", errno);
      put += written;
      *received += (uint64_t)written;
    }
  }
}

/* The end of stdin alone proves nothing: a guest agent that died ends it too. */
static bool committed(void) {
  char line[sizeof COMMIT - 1];
  size_t used = 0;
  while (used < sizeof line) {
    ssize_t got = read(CONTROL_FD, line + used, sizeof line - used);
    if (got <= 0)
      return false;
    used += (size_t)got;
  }
  return memcmp(line, COMMIT, sizeof line) == 0;
}

static int split_target(struct target *target, const char *path) {
  struct stat status;
  char *resolved = NULL;
  if (lstat(path, &status) == 0 && S_ISLNK(status.st_mode)) {
    resolved = realpath(path, NULL);
    if (resolved == NULL)
      return -1;
    path = resolved;
  }
  size_t length = strlen(path);
  if (length > PATH_MAX_BYTES)
    return errno = ENAMETOOLONG, -1;
  memcpy(target->path, path, length + 1);
  free(resolved);
  char *slash = strrchr(target->path, '/');
  target->name = slash == NULL ? target->path : slash + 1;
  if (target->name[0] == '\0' || strcmp(target->name, ".") == 0 || strcmp(target->name, "..") == 0)
    return errno = EISDIR, -1;
  const char *dir = slash == NULL ? "." : slash == target->path ? "/" : target->path;
  if (slash != NULL && slash != target->path)
    *slash = '\0';
  target->dir = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (target->dir < 0 && errno == EACCES)
    target->dir = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC); /* writable but not readable */
  return target->dir < 0 ? -1 : 0;
}

/* A rename needs rights on the directory only; whoever may not write the file may not replace it. */
static int check_target(struct target *target, const struct request *request) {
  if (fstatat(target->dir, target->name, &target->status, AT_SYMLINK_NOFOLLOW) != 0)
    return errno == ENOENT ? 0 : -1;
  target->exists = true;
  if (S_ISDIR(target->status.st_mode))
    return errno = EISDIR, -1;
  if (has_flag(request, FLAG_EXCLUSIVE))
    return errno = EEXIST, -1;
  if (!S_ISREG(target->status.st_mode))
    return errno = EINVAL, -1;
  return faccessat(target->dir, target->name, W_OK, 0);
}

static int open_temporary(struct target *target) {
  uint64_t number;
  if (getrandom(&number, sizeof number, 0) != (ssize_t)sizeof number)
    return -1;
  snprintf(target->temporary, sizeof target->temporary, ".capsem-%016llx", (unsigned long long)number);
  return openat(target->dir, target->temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
}

static int finish(int fd, const struct target *target, const struct request *request, struct failure *failure) {
  mode_t mode = has_tag(request, TAG_MODE)  ? (mode_t)request->mode
                : target->exists            ? target->status.st_mode & 0777
                                            : MODE_DEFAULT;
  /* Only uid 0 may give a file away, and only then a replaced file keeps its owner. */
  if (target->exists && fchown(fd, target->status.st_uid, target->status.st_gid) != 0 && errno != EPERM)
    return fail(failure, "write", errno);
  if (fchmod(fd, mode) != 0)
    return fail(failure, "write", errno);
  if (has_flag(request, FLAG_SYNC) && fsync(fd) != 0)
    return fail(failure, "sync", errno);
  unsigned flags = has_flag(request, FLAG_EXCLUSIVE) ? RENAME_NOREPLACE : 0;
  if (renameat2(target->dir, target->temporary, target->dir, target->name, flags) != 0)
    return fail(failure, "rename", errno);
  if (has_flag(request, FLAG_SYNC) && fsync(target->dir) != 0)
    return fail(failure, "sync", errno);
  return 0;
}

static int replace(const struct request *request, uint64_t *received, struct failure *failure) {
  static struct target target;
  if (split_target(&target, request->path) != 0 || check_target(&target, request) != 0)
    return fail(failure, "open", errno);
  int fd = open_temporary(&target);
  if (fd < 0)
    return fail(failure, "open", errno);
  int result = answer(CONTROL_FD, "ready") == 0 ? receive(fd, request, 0, received, failure)
                                                : fail(failure, "output", errno);
  if (result == 0 && !committed())
    result = fail(failure, "input", ECANCELED);
  if (result == 0)
    result = finish(fd, &target, request, failure);
  if (result != 0)
    unlinkat(target.dir, target.temporary, 0); /* gone already where only the last sync failed */
  return result;
}

static int write_in_place(const struct request *request, uint64_t *received, struct failure *failure) {
  struct stat status;
  int flags = O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
  flags |= has_flag(request, FLAG_CREATE) ? O_CREAT : 0;
  flags |= has_flag(request, FLAG_EXCLUSIVE) ? O_EXCL : 0;
  mode_t mode = has_tag(request, TAG_MODE) ? (mode_t)request->mode : MODE_DEFAULT;
  int fd = open(request->path, flags, mode);
  if (fd < 0 || fstat(fd, &status) != 0)
    return fail(failure, "open", errno);
  if (!S_ISREG(status.st_mode))
    return fail(failure, "open", EINVAL);
  if (has_flag(request, FLAG_TRUNCATE) && ftruncate(fd, 0) != 0)
    return fail(failure, "write", errno);
  if (answer(CONTROL_FD, "ready") != 0)
    return fail(failure, "output", errno);
  if (receive(fd, request, request->offset, received, failure) != 0)
    return -1;
  return has_flag(request, FLAG_SYNC) && fsync(fd) != 0 ? fail(failure, "sync", errno) : 0;
}

int file_write(const struct request *request, struct failure *failure) {
  uint64_t received = 0;
  if (has_flag(request, FLAG_PARENTS) && make_parents(request->path, PARENT_MODE) != 0)
    return fail(failure, "mkdir", errno);
  int result = has_flag(request, FLAG_IN_PLACE) ? write_in_place(request, &received, failure)
                                                : replace(request, &received, failure);
  if (result != 0)
    return -1;
  if (answer(CONTROL_FD, "ok %llu", (unsigned long long)received) != 0)
    return fail(failure, "output", errno);
  return 0;
}
