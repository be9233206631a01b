#include "job.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAMES_BYTES 32768
#define DEPTH_MAX 65536
#define DIRECTORY_MODE_DEFAULT 0755

static int answer_ok(struct failure *failure) {
  return answer(CONTROL_FD, "ok") == 0 ? 0 : fail(failure, "output", errno);
}

/* Makes what is missing before the last component. */
int make_parents(const char *path, mode_t mode) {
  char prefix[PATH_MAX_BYTES + 1];
  size_t length = strlen(path);
  memcpy(prefix, path, length + 1);
  while (length > 0 && prefix[length - 1] == '/')
    prefix[--length] = '\0';
  for (char *slash = strchr(prefix + (prefix[0] == '/'), '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
    *slash = '\0';
    if (mkdir(prefix, mode) != 0 && errno != EEXIST)
      return -1;
    *slash = '/';
  }
  return 0;
}

int tree_mkdir(const struct request *request, struct failure *failure) {
  struct stat status;
  bool parents = has_flag(request, FLAG_PARENTS);
  mode_t mode = has_tag(request, TAG_MODE) ? (mode_t)request->mode : DIRECTORY_MODE_DEFAULT;
  if (parents && make_parents(request->path, mode) != 0)
    return fail(failure, "mkdir", errno);
  if (mkdir(request->path, mode) != 0) {
    int err = errno;
    bool fine = parents && err == EEXIST && stat(request->path, &status) == 0 && S_ISDIR(status.st_mode);
    if (!fine)
      return fail(failure, "mkdir", err);
  }
  return answer_ok(failure);
}

int tree_rename(const struct request *request, struct failure *failure) {
  unsigned flags = has_flag(request, FLAG_EXCLUSIVE) ? RENAME_NOREPLACE : 0;
  if (renameat2(AT_FDCWD, request->path, AT_FDCWD, request->path2, flags) != 0)
    return fail(failure, "rename", errno);
  return answer_ok(failure);
}

struct place_id {
  dev_t dev;
  ino_t ino;
};

static int identify(int dir, struct place_id *id) {
  struct stat status;
  if (fstat(dir, &status) != 0)
    return -1;
  *id = (struct place_id){status.st_dev, status.st_ino};
  return 0;
}

/* 1 = gone, 0 = a directory that is not empty, -1 = error */
static int remove_entry(int dir, const char *name) {
  if (unlinkat(dir, name, 0) == 0 || errno == ENOENT)
    return 1;
  if (errno != EISDIR)
    return -1;
  if (unlinkat(dir, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
    return 1;
  return errno == ENOTEMPTY || errno == EEXIST ? 0 : -1;
}

static int open_directory(int dir, const char *name) {
  return openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/* Opens name as the next directory to empty; one of another file system is somebody's mount. */
static int descend(int dir, const char *name, dev_t dev) {
  struct place_id id;
  int child = open_directory(dir, name);
  if (child < 0)
    return -1;
  if (identify(child, &id) != 0 || id.dev != dev) {
    close(child);
    return errno = EXDEV, -1;
  }
  return child;
}

/* Removes what it can of one directory. 1 = empty, 0 = changed: scan again, -1 = error;
 * *child is the first directory that was not empty. */
static int scan(int dir, dev_t dev, int *child) {
  static _Alignas(struct dirent64) char names[NAMES_BYTES];
  bool seen = false;
  if (lseek(dir, 0, SEEK_SET) < 0)
    return -1;
  for (;;) {
    ssize_t got = getdents64(dir, names, sizeof names);
    if (got <= 0)
      return got < 0 ? -1 : !seen;
    for (ssize_t at = 0; at < got;) {
      const struct dirent64 *entry = (const struct dirent64 *)(names + at);
      at += entry->d_reclen;
      if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
        continue;
      seen = true;
      int gone = remove_entry(dir, entry->d_name);
      if (gone < 0)
        return -1;
      if (gone == 0) {
        *child = descend(dir, entry->d_name, dev);
        return *child < 0 ? -1 : 0;
      }
    }
  }
}

/* Two descriptors at any depth: the way back is "..", and it must lead to where we came from,
 * since a directory that was moved meanwhile would take us out of the tree. */
static int empty_tree(int *current) {
  static struct place_id way[DEPTH_MAX];
  size_t depth = 0;
  struct place_id own, up;
  if (identify(*current, &own) != 0)
    return -1;
  for (;;) {
    int child = -1;
    int empty = scan(*current, own.dev, &child);
    if (empty < 0)
      return -1;
    if (child >= 0) {
      int next = depth < DEPTH_MAX ? identify(*current, &way[depth]) : (errno = ELOOP, -1);
      close(*current);
      *current = child;
      depth++;
      if (next != 0)
        return -1;
    } else if (empty == 1) {
      if (depth == 0)
        return 0;
      int parent = open_directory(*current, "..");
      close(*current);
      *current = parent;
      depth--;
      if (parent < 0 || identify(parent, &up) != 0)
        return -1;
      if (up.dev != way[depth].dev || up.ino != way[depth].ino)
        return errno = ESTALE, -1;
    }
  }
}

static int remove_tree(int dir, const char *name) {
  struct place_id id;
  int current = identify(dir, &id) == 0 ? descend(dir, name, id.dev) : -1;
  if (current < 0)
    return -1;
  int result = empty_tree(&current);
  int saved = errno;
  if (current >= 0)
    close(current);
  errno = saved;
  return result == 0 && remove_entry(dir, name) == 1 ? 0 : -1;
}

int tree_remove(const struct request *request, struct failure *failure) {
  static char path[PATH_MAX_BYTES + 1];
  struct stat status;
  size_t length = strlen(request->path);
  memcpy(path, request->path, length + 1);
  while (length > 1 && path[length - 1] == '/')
    path[--length] = '\0';
  char *slash = strrchr(path, '/');
  const char *name = slash == NULL ? path : slash + 1;
  if (name[0] == '\0' || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
    return fail(failure, "remove", EINVAL);
  const char *parent = slash == NULL ? "." : slash == path ? "/" : path;
  if (slash != NULL && slash != path)
    *slash = '\0';
  int dir = open(parent, O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (dir < 0 || fstatat(dir, name, &status, AT_SYMLINK_NOFOLLOW) != 0)
    return fail(failure, "remove", errno);
  int gone = remove_entry(dir, name);
  if (gone == 0 && !has_flag(request, FLAG_RECURSIVE))
    return fail(failure, "remove", ENOTEMPTY);
  if (gone < 0 || (gone == 0 && remove_tree(dir, name) != 0))
    return fail(failure, "remove", errno);
  return answer_ok(failure);
}
