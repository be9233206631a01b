#include "helper.h"

#include <errno.h>
#include <fcntl.h>
#include <mntent.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#define RELEASE_TRIES 200
#define RELEASE_WAIT_NANOS 10000000L

struct place {
  const char *step;
  const char *path; /* in the workload root */
  const char *type;
  unsigned long flags;
  const char *options;
};

/* In mounting order. /dev is the only place of the workload root where a device node opens. */
static const struct place places[] = {
    {"dev", "dev", "tmpfs", MS_NOSUID | MS_NOEXEC, "mode=755,size=64k"},
    {"run", "run", "tmpfs", MS_NOSUID | MS_NODEV, "mode=755,size=20%"},
    {"tmp", "tmp", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777,size=20%"},
    {"shm", "dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777,size=20%"},
    {"pts", "dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620,gid=5"},
};

struct node {
  const char *name;
  unsigned minor_number;
  unsigned major_number;
};

static const struct node nodes[] = {
    {"null", 3, 1}, {"zero", 5, 1}, {"full", 7, 1}, {"random", 8, 1}, {"urandom", 9, 1}, {"tty", 0, 5},
};

static const char *const links[][2] = {
    {"/proc/self/fd", "fd"},           {"/proc/self/fd/0", "stdin"}, {"/proc/self/fd/1", "stdout"},
    {"/proc/self/fd/2", "stderr"},     {"pts/ptmx", "ptmx"},
};

static int make_nodes(int root) {
  int dev = open_beneath(root, "dev", O_PATH | O_DIRECTORY);
  if (dev < 0)
    return -1;
  int result = 0;
  for (size_t i = 0; i < sizeof nodes / sizeof nodes[0] && result == 0; i++)
    result = mknodat(dev, nodes[i].name, S_IFCHR | 0666, makedev(nodes[i].major_number, nodes[i].minor_number));
  for (size_t i = 0; i < sizeof links / sizeof links[0] && result == 0; i++)
    result = symlinkat(links[i][0], dev, links[i][1]);
  int saved = errno;
  close(dev);
  errno = saved;
  return result;
}

static int make_upper(void) {
  int disk = open(DISK_PATH, O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (disk < 0)
    return -1;
  int upper = directory_beneath(disk, "u", 0755);
  int work = upper < 0 ? -1 : directory_beneath(disk, "w", 0755);
  int saved = errno;
  if (work >= 0)
    close(work);
  if (upper >= 0)
    close(upper);
  close(disk);
  errno = saved;
  return work < 0 ? -1 : 0;
}

static int mount_places(int root, struct failure *failure) {
  for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
    const struct place *place = &places[i];
    if (mount_beneath(root, place->path, place->type, place->flags, place->options) != 0)
      return fail(failure, place->step, errno);
  }
  return make_nodes(root) == 0 ? 0 : fail(failure, "nodes", errno);
}

static int build_root(struct disk *disk, const struct machine *machine, struct failure *failure) {
  static const char layers[] = "lowerdir=/,upperdir=" DISK_PATH "/u,workdir=" DISK_PATH "/w";
  if (make_upper() != 0)
    return fail(failure, "upper", errno);
  /* nodev here is what keeps root in the workload from reading the raw disks. */
  if (mount("overlay", ROOT_PATH, "overlay", MS_NODEV | MS_NOATIME, layers) != 0)
    return fail(failure, "overlay", errno);
  int root = open(ROOT_PATH, O_PATH | O_DIRECTORY | O_CLOEXEC);
  int result = root < 0 ? fail(failure, "overlay", errno) : mount_places(root, failure);
  if (result == 0) {
    disk->run_dir = open_beneath(root, "run", O_PATH | O_DIRECTORY);
    if (disk->run_dir < 0 || write_identity(disk->run_dir, machine) != 0)
      result = fail(failure, "identity", errno);
  }
  if (root >= 0)
    close(root);
  return result;
}

/* Takes down whatever of it is mounted; names the first place that was still in use. */
static const char *take_down(void) {
  const char *busy = NULL;
  char path[64];
  for (size_t i = sizeof places / sizeof places[0]; i-- > 0;) {
    snprintf(path, sizeof path, ROOT_PATH "/%s", places[i].path);
    if (umount2(path, UMOUNT_NOFOLLOW) != 0 && errno == EBUSY) {
      busy = busy == NULL ? places[i].step : busy;
      umount2(path, MNT_DETACH | UMOUNT_NOFOLLOW);
    }
  }
  static const char *const bases[][2] = {{"overlay", ROOT_PATH}, {"disk", DISK_PATH}};
  for (size_t i = 0; i < 2; i++) {
    if (umount2(bases[i][1], UMOUNT_NOFOLLOW) != 0 && errno == EBUSY) {
      busy = busy == NULL ? bases[i][0] : busy;
      umount2(bases[i][1], MNT_DETACH | UMOUNT_NOFOLLOW);
    }
  }
  return busy;
}

/* What a helper before us mounted, which may have been ended at any moment: all of it is there and ours, or none is. */
void disk_adopt(struct disk *disk) {
  char device[sizeof disk->device] = "";
  bool is_whole = false;
  struct mntent *entry;
  FILE *table = setmntent("/proc/self/mounts", "re");
  if (table == NULL)
    return;
  while ((entry = getmntent(table)) != NULL) {
    if (strcmp(entry->mnt_dir, DISK_PATH) == 0)
      snprintf(device, sizeof device, "%s", entry->mnt_fsname);
    is_whole |= strcmp(entry->mnt_dir, ROOT_PATH "/dev/pts") == 0; /* the last of them */
  }
  endmntent(table);
  if (device[0] == '\0')
    return;
  int root = is_whole ? open(ROOT_PATH, O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
  disk->run_dir = root < 0 ? -1 : open_beneath(root, "run", O_PATH | O_DIRECTORY);
  if (root >= 0)
    close(root);
  if (disk->run_dir < 0) {
    take_down();
    return;
  }
  disk->is_adopted = true;
  memcpy(disk->device, device, sizeof device);
}

/* Whoever asked the helper before us had no answer, and asks again. */
static int mount_adopted(struct disk *disk, const struct machine *machine, struct failure *failure) {
  disk->is_adopted = false;
  return write_identity(disk->run_dir, machine) == 0 ? 0 : fail(failure, "identity", errno);
}

int disk_mount(struct disk *disk, const char *device, const struct machine *machine, struct failure *failure) {
  if (disk->is_adopted && strcmp(disk->device, device) == 0)
    return mount_adopted(disk, machine, failure);
  if (disk->run_dir >= 0)
    return fail(failure, "state", EBUSY);
  umask(0);
  /* A new disk reads as zeros: nothing has to write them into its inode tables. */
  if (mount(device, DISK_PATH, "ext4", MS_NOSUID | MS_NODEV | MS_NOATIME, "noinit_itable") != 0)
    return fail(failure, "disk", errno);
  if (build_root(disk, machine, failure) == 0) {
    snprintf(disk->device, sizeof disk->device, "%s", device);
    return 0;
  }
  if (disk->run_dir >= 0)
    close(disk->run_dir);
  disk->run_dir = -1;
  take_down();
  return -1;
}

/* A mount namespace that is going away keeps the file system alive a little longer than the
 * unmount: the exclusive open says when the journal is really closed. */
static int await_release(const char *device) {
  for (int i = 0; i < RELEASE_TRIES; i++) {
    int fd = open(device, O_RDONLY | O_EXCL | O_CLOEXEC);
    if (fd >= 0) {
      close(fd);
      return 0;
    }
    if (errno != EBUSY)
      return -1;
    struct timespec wait = {.tv_nsec = RELEASE_WAIT_NANOS};
    nanosleep(&wait, NULL);
  }
  errno = EBUSY;
  return -1;
}

int disk_unmount(struct disk *disk, const char **lazy_step, struct failure *failure) {
  if (disk->run_dir < 0)
    return fail(failure, "state", EINVAL);
  sync();
  close(disk->run_dir);
  disk->run_dir = -1;
  disk->is_adopted = false;
  *lazy_step = take_down();
  if (*lazy_step == NULL && await_release(disk->device) != 0) {
    if (errno != EBUSY)
      return fail(failure, "release", errno);
    *lazy_step = "release";
  }
  if (*lazy_step != NULL)
    sync();
  return 0;
}
