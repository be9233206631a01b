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
/* Where HTTP clients of the workload find their tools: an address for documentation, so that no real one is hidden. */
#define TOOLS_ADDRESS "192.0.2.1"
#define TOOLS_ADDRESS_NUMBER 0xc0000201u
#define WORKLOAD_ADDRESS_NUMBER 0xc0000202u /* 192.0.2.2: where they ask from */
#define TOOLS_HOST "mcp.capsem.internal"
#define CLIENT_NAME "capsem-mcp-server" /* the thin client, in the workload's /run */

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
  bool is_adopted; /* from a helper before us, and nobody has asked for it since */
};
void disk_adopt(struct disk *disk);
int disk_mount(struct disk *disk, const char *device, const struct machine *machine, struct failure *failure);
int disk_unmount(struct disk *disk, const char **lazy_step, struct failure *failure);

/* privilege.c */
int open_cgroup(const char *path); /* its directory */
int join_cgroup(int cgroup);
int drop_bounding_set(void);
int drop_all_capabilities(void);
int keep_capabilities(uint64_t mask);
int become(uid_t uid, gid_t gid, const gid_t *groups, size_t group_count);
int die_with_parent(int signal_number, pid_t parent);

/* workload.c: in the caller's network namespace */
int raise_loopback(void);

/* name.c: a process as it is told to the host */
size_t utf8_length(const unsigned char *at, size_t left);
#define PROCESS_NAME_BYTES 128
/* Puts at most PROCESS_NAME_BYTES of valid UTF-8 and a NUL: control characters, spaces and what is no UTF-8 become `_`. */
size_t name_clean(const char *from, size_t length, char name[PROCESS_NAME_BYTES + 1]);
/* Of /proc/PID; 0 when the process is gone. `parent` may be NULL. */
size_t name_of_process(int pid, char name[PROCESS_NAME_BYTES + 1], int *parent);

/* roles */
int repair_main(int argc, char **argv);
int workload_main(int argc, char **argv);
int job_main(void);
int relay_main(int argc, char **argv);
int traffic_main(int argc, char **argv);
int mcp_main(int argc);

#endif
