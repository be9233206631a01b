/* Everything the roles of capsem-helper share. Every function that can fail
 * returns 0 or -1 and then has filled a struct failure; nothing is printed
 * below the role's own main function. */
#ifndef CAPSEM_HELPER_H
#define CAPSEM_HELPER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define HOSTNAME_MAX_BYTES 63
#define PATH_MAX_BYTES 4095
#define CGROUP_MAX_BYTES 255
#define PID_MAX 4194304u
#define DISK_PATH "/mnt/disk"
#define ROOT_PATH "/mnt/root"
#define CGROUP_ROOT "/sys/fs/cgroup/"

struct failure {
  const char *step; /* one word of PROTOCOL.md */
  int err;          /* errno */
};

/* text.c */
int fail(struct failure *failure, const char *step, int err);
int write_all(int fd, const void *bytes, size_t length);
int answer(int fd, const char *format, ...) __attribute__((format(printf, 2, 3)));
int answer_failure(int fd, const struct failure *failure);
bool parse_u64(const char *text, uint64_t min, uint64_t max, uint64_t *value);
bool hostname_valid(const char *text);
bool cgroup_path_valid(const char *path);
int write_file_at(int dir, const char *name, const char *text, mode_t mode);

/* mount_at.c: mounts addressed by descriptors, so that no link in the tree can redirect one */
int open_beneath(int root, const char *path, int flags);
int directory_beneath(int root, const char *path, mode_t mode);
int mount_beneath(int root, const char *path, const char *type, unsigned long flags, const char *options);
int bind_beneath(int source, int root, const char *path);
int read_only_beneath(int root, const char *path);
int protect_beneath(int root, const char *path); /* makes a part of a mount read-only */

/* identity.c: the files that tell the workload who it is */
struct machine {
  char hostname[HOSTNAME_MAX_BYTES + 1];
  char machine_id[33]; /* empty before the first repair */
};
int write_identity(int run_dir, const struct machine *machine);
int set_hostname_of(pid_t init, const char *hostname);

/* disk.c */
struct disk {
  int run_dir; /* the workload root's /run, -1 while nothing is mounted */
  char device[48];
};
int disk_mount(struct disk *disk, const char *device, const struct machine *machine, struct failure *failure);
int disk_unmount(struct disk *disk, const char **lazy_step, struct failure *failure);

/* privilege.c */
int open_cgroup(const char *path); /* its directory */
int join_cgroup(int cgroup);
int drop_bounding_set(void);
int drop_all_capabilities(void);
int become(uid_t uid, gid_t gid, const gid_t *groups, size_t group_count);
int die_with_parent(int signal_number, pid_t parent);

/* roles */
int repair_main(int argc, char **argv);
int workload_main(int argc, char **argv);
int job_main(void);
int relay_main(int argc, char **argv);

#endif
