#include "helper.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define BIT(capability) (UINT64_C(1) << (capability))

/* A list of what stays, so that a capability of a later kernel is dropped without an edit.
 * sys_nice is not in it: a real-time thread of the workload would starve the guest agent. */
static const uint64_t kept_capabilities =
    BIT(CAP_CHOWN) | BIT(CAP_DAC_OVERRIDE) | BIT(CAP_FOWNER) | BIT(CAP_FSETID) | BIT(CAP_KILL) |
    BIT(CAP_SETGID) | BIT(CAP_SETUID) | BIT(CAP_SETPCAP) | BIT(CAP_NET_BIND_SERVICE) | BIT(CAP_NET_RAW) |
    BIT(CAP_IPC_LOCK) | BIT(CAP_IPC_OWNER) | BIT(CAP_SYS_CHROOT) | BIT(CAP_AUDIT_WRITE) | BIT(CAP_SETFCAP);

int open_cgroup(const char *path) { return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC); }

/* "0" is the writer itself, whatever its pid is in the namespace of the cgroup's mount. */
int join_cgroup(int cgroup) {
  int procs = openat(cgroup, "cgroup.procs", O_WRONLY | O_CLOEXEC);
  if (procs < 0)
    return -1;
  int result = write_all(procs, "0", 1);
  int saved = errno;
  close(procs);
  errno = saved;
  return result;
}

int drop_bounding_set(void) {
  for (int capability = 0; capability < 64; capability++) {
    if (kept_capabilities & BIT(capability))
      continue;
    if (prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0) {
      if (errno == EINVAL)
        break; /* beyond the last capability of this kernel */
      return -1;
    }
  }
  return 0;
}

static int set_capabilities(uint64_t mask) {
  struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  struct __user_cap_data_struct data[2];
  if (syscall(SYS_capget, &header, data) != 0)
    return -1;
  for (int i = 0; i < 2; i++) {
    uint32_t half = (uint32_t)(mask >> (32 * i));
    data[i].permitted &= half;
    data[i].effective = data[i].permitted;
    data[i].inheritable = 0;
  }
  return (int)syscall(SYS_capset, &header, data);
}

int drop_all_capabilities(void) { return set_capabilities(0); }

int keep_capabilities(uint64_t mask) { return set_capabilities(mask); }

/* Setuid programs keep working for the user (no NO_NEW_PRIVS), within the bounding set that the
 * caller has dropped. For uid 0 the kernel keeps the permitted set over setresuid, so it is cut explicitly. */
int become(uid_t uid, gid_t gid, const gid_t *groups, size_t group_count) {
  if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) != 0)
    return -1;
  if (setgroups(group_count, groups) != 0 || setresgid(gid, gid, gid) != 0)
    return -1;
  if (set_capabilities(kept_capabilities) != 0 || setresuid(uid, uid, uid) != 0)
    return -1;
  return uid == 0 ? 0 : drop_all_capabilities();
}

/* The kernel forgets the parent-death signal when ids change: call it after that. The check
 * closes the gap in which the parent ended before the call; a parent outside the pid namespace
 * reads as 0 and is checked by other means. */
int die_with_parent(int signal_number, pid_t parent) {
  if (prctl(PR_SET_PDEATHSIG, signal_number, 0, 0, 0) != 0)
    return -1;
  if (getppid() != parent)
    return errno = ESRCH, -1;
  return 0;
}
