#include "helper.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A retained disk may hold any link where we expect a directory: no component is followed. */
int open_beneath(int root, const char *path, int flags) {
  struct open_how how = {
      .flags = (uint64_t)(flags | O_CLOEXEC | O_NOFOLLOW),
      .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
  };
  return (int)syscall(SYS_openat2, root, path, &how, sizeof how);
}

int directory_beneath(int root, const char *path, mode_t mode) {
  int fd = open_beneath(root, path, O_PATH | O_DIRECTORY);
  if (fd >= 0 || errno != ENOENT)
    return fd;
  const char *slash = strrchr(path, '/');
  int parent = root;
  if (slash != NULL) {
    char name[256];
    size_t length = (size_t)(slash - path);
    if (length >= sizeof name)
      return errno = ENAMETOOLONG, -1;
    memcpy(name, path, length);
    name[length] = '\0';
    parent = open_beneath(root, name, O_PATH | O_DIRECTORY);
    if (parent < 0)
      return -1;
  }
  int made = mkdirat(parent, slash == NULL ? path : slash + 1, mode);
  int saved = errno;
  if (parent != root)
    close(parent);
  errno = saved;
  return made == 0 ? open_beneath(root, path, O_PATH | O_DIRECTORY) : -1;
}

static void descriptor_path(int fd, char path[32]) { snprintf(path, 32, "/proc/self/fd/%d", fd); }

/* Needs /proc in the caller's own root. */
int mount_beneath(int root, const char *path, const char *type, unsigned long flags, const char *options) {
  char target[32];
  int fd = directory_beneath(root, path, 0755);
  if (fd < 0)
    return -1;
  descriptor_path(fd, target);
  int result = mount(type, target, type, flags, options);
  int saved = errno;
  close(fd);
  errno = saved;
  return result;
}

int bind_beneath(int source, int root, const char *path) {
  char from[32], to[32];
  int fd = open_beneath(root, path, O_PATH);
  if (fd < 0)
    return -1;
  descriptor_path(source, from);
  descriptor_path(fd, to);
  int result = mount(from, to, NULL, MS_BIND, NULL);
  int saved = errno;
  close(fd);
  errno = saved;
  return result;
}

/* The flags that are there stay, since a remount that drops nosuid or nodev would widen them. */
int read_only_beneath(int root, const char *path) {
  char name[32];
  struct statvfs status;
  int fd = open_beneath(root, path, O_PATH);
  if (fd < 0)
    return -1;
  descriptor_path(fd, name);
  int result = fstatvfs(fd, &status);
  if (result == 0) {
    unsigned long flags = MS_REMOUNT | MS_BIND | MS_RDONLY;
    flags |= (status.f_flag & ST_NOSUID) ? MS_NOSUID : 0;
    flags |= (status.f_flag & ST_NODEV) ? MS_NODEV : 0;
    flags |= (status.f_flag & ST_NOEXEC) ? MS_NOEXEC : 0;
    result = mount(NULL, name, NULL, flags, NULL);
  }
  int saved = errno;
  close(fd);
  errno = saved;
  return result;
}

int protect_beneath(int root, const char *path) {
  int fd = open_beneath(root, path, O_PATH);
  if (fd < 0)
    return -1;
  int result = bind_beneath(fd, root, path);
  int saved = errno;
  close(fd);
  errno = saved;
  return result == 0 ? read_only_beneath(root, path) : -1;
}
