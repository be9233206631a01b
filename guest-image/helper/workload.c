#include "helper.h"

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

struct workload {
  const char *root_path;
  const char *cgroup_path; /* "" for none */
  char hostname[HOSTNAME_MAX_BYTES + 1]; /* empty: PID 1 waits to be told it */
  int cgroup; /* its directory, -1 for none */
  int root;
};

/* None of these needs a capability to be opened by uid 0, so only the mount protects them. */
static const char *const read_only_paths[] = {"proc/sys", "proc/sysrq-trigger", "proc/bus", "proc/fs", "proc/irq"};
static const char *const masked_paths[] = {
    "proc/kcore", "proc/keys", "proc/timer_list", "proc/sched_debug", "proc/kmsg",
    "proc/acpi",  "proc/scsi", "sys/firmware",
};

static int mask(int root, const char *path, int null_device) {
  struct stat status;
  int fd = open_beneath(root, path, O_PATH);
  if (fd < 0)
    return errno == ENOENT ? 0 : -1;
  int result = fstat(fd, &status);
  close(fd);
  if (result != 0)
    return -1;
  if (!S_ISDIR(status.st_mode))
    return bind_beneath(null_device, root, path);
  return mount_beneath(root, path, "tmpfs", MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC,
                       "mode=555,size=4k,nr_inodes=2");
}

static int hide_paths(int root) {
  for (size_t i = 0; i < sizeof read_only_paths / sizeof read_only_paths[0]; i++)
    if (protect_beneath(root, read_only_paths[i]) != 0 && errno != ENOENT)
      return -1;
  int null_device = open("/dev/null", O_PATH | O_CLOEXEC);
  if (null_device < 0)
    return -1;
  int result = 0;
  for (size_t i = 0; i < sizeof masked_paths / sizeof masked_paths[0] && result == 0; i++)
    result = mask(root, masked_paths[i], null_device);
  int saved = errno;
  close(null_device);
  errno = saved;
  return result;
}

/* The view starts at the first directory of the cgroup path: its limits are the workload's. */
static int mount_cgroup_view(const struct workload *workload) {
  char view[CGROUP_MAX_BYTES + 1];
  if (workload->cgroup < 0)
    return 0;
  snprintf(view, sizeof view, "%s", workload->cgroup_path);
  char *rest = strchr(view + strlen(CGROUP_ROOT), '/');
  if (rest != NULL)
    *rest = '\0';
  int source = open(view, O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (source < 0)
    return -1;
  int result = bind_beneath(source, workload->root, "sys/fs/cgroup");
  int saved = errno;
  close(source);
  errno = saved;
  return result == 0 ? read_only_beneath(workload->root, "sys/fs/cgroup") : -1;
}

/* An image that links these files to /run needs nothing here. */
static int bind_identity(int root) {
  static const char *const files[][2] = {
      {"run/machine-id", "etc/machine-id"}, {"run/hostname", "etc/hostname"}, {"run/hosts", "etc/hosts"}};
  for (size_t i = 0; i < 3; i++) {
    int source = open_beneath(root, files[i][0], O_PATH);
    if (source < 0)
      continue;
    int result = bind_beneath(source, root, files[i][1]);
    int saved = errno;
    close(source);
    if (result != 0 && saved != ENOENT && saved != ELOOP)
      return errno = saved, -1;
  }
  return 0;
}

/* This very program, under the name by which it is the thin client of tool calls. */
static int place_client(int root) {
  int run = open_beneath(root, "run", O_PATH | O_DIRECTORY);
  if (run < 0)
    return errno == ENOENT ? 0 : -1;
  int made = unlinkat(run, CLIENT_NAME, 0) == 0 || errno == ENOENT
                 ? openat(run, CLIENT_NAME, O_RDONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0555)
                 : -1;
  /* By its name: the descriptor behind the link is of the mount namespace that we left. */
  char name[PATH_MAX_BYTES + 1];
  ssize_t length = readlink("/proc/self/exe", name, sizeof name - 1);
  name[length > 0 ? length : 0] = '\0';
  int self = made < 0 || length <= 0 ? -1 : open(name, O_PATH | O_CLOEXEC);
  int result = self < 0 ? -1 : bind_beneath(self, root, "run/" CLIENT_NAME);
  if (result == 0)
    result = read_only_beneath(root, "run/" CLIENT_NAME);
  int saved = errno;
  int opened[] = {run, made, self};
  for (size_t i = 0; i < sizeof opened / sizeof opened[0]; i++)
    if (opened[i] >= 0)
      close(opened[i]);
  errno = saved;
  return result;
}

static int enter_root(const struct workload *workload) {
  if (fchdir(workload->root) != 0 || syscall(SYS_pivot_root, ".", ".") != 0)
    return -1;
  /* The old root now lies on top of the new one at ".": away with it, and nothing leads back. */
  return umount2(".", MNT_DETACH) == 0 && chdir("/") == 0 ? 0 : -1;
}

int raise_loopback(void) {
  struct ifreq request = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
  int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0)
    return -1;
  int result = ioctl(fd, SIOCSIFFLAGS, &request);
  int saved = errno;
  close(fd);
  errno = saved;
  return result;
}

/* All of it that needs no root: it may stand long before there is one. */
static int prepare(struct workload *workload, struct failure *failure) {
  if (workload->cgroup >= 0 && join_cgroup(workload->cgroup) != 0)
    return fail(failure, "cgroup", errno);
  if (unshare(CLONE_NEWCGROUP) != 0)
    return fail(failure, "namespaces", errno);
  return raise_loopback() == 0 ? 0 : fail(failure, "loopback", errno);
}

/* "start HOSTNAME" is the only order. 1: the agent is gone, or wants none any more. */
static int await_order(struct workload *workload, struct failure *failure) {
  static const char verb[] = "start ";
  char line[sizeof verb + HOSTNAME_MAX_BYTES + 1];
  size_t used = 0;
  while (used == 0 || line[used - 1] != '\n') {
    ssize_t got = used < sizeof line ? read(STDIN_FILENO, line + used, 1) : -1;
    if (got < 0 && errno == EINTR)
      continue;
    if (got == 0)
      return 1;
    if (got < 0)
      return fail(failure, "request", EINVAL);
    used++;
  }
  line[used - 1] = '\0';
  const char *hostname = line + sizeof verb - 1;
  if (strlen(line) != used - 1 || strncmp(line, verb, sizeof verb - 1) != 0 || !hostname_valid(hostname))
    return fail(failure, "request", EINVAL);
  strcpy(workload->hostname, hostname);
  return 0;
}

static int build(struct workload *workload, struct failure *failure) {
  const unsigned long quiet = MS_NOSUID | MS_NODEV | MS_NOEXEC;
  /* Not before now: it is a copy of what the agent has mounted, the root with it. */
  if (unshare(CLONE_NEWNS) != 0)
    return fail(failure, "namespaces", errno);
  if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0)
    return fail(failure, "private", errno);
  workload->root = open(workload->root_path, O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (workload->root < 0)
    return fail(failure, "root", errno);
  if (mount_beneath(workload->root, "proc", "proc", quiet, "") != 0)
    return fail(failure, "proc", errno);
  if (mount_beneath(workload->root, "sys", "sysfs", quiet | MS_RDONLY, "") != 0)
    return fail(failure, "sys", errno);
  if (mount_cgroup_view(workload) != 0)
    return fail(failure, "cgroup-view", errno);
  if (bind_identity(workload->root) != 0)
    return fail(failure, "identity", errno);
  if (place_client(workload->root) != 0)
    return fail(failure, "client", errno);
  if (hide_paths(workload->root) != 0)
    return fail(failure, "mask", errno);
  if (enter_root(workload) != 0)
    return fail(failure, "root", errno);
  if (sethostname(workload->hostname, strlen(workload->hostname)) != 0)
    return fail(failure, "hostname", errno);
  return 0;
}

static int renounce(struct failure *failure) {
  int null_device = open("/dev/null", O_RDWR);
  if (null_device < 0 || dup2(null_device, 0) < 0 || dup2(null_device, 1) < 0 || dup2(null_device, 2) < 0)
    return fail(failure, "init", errno);
  setpriority(PRIO_PROCESS, 0, 0);
  prctl(PR_SET_NAME, "capsem-init", 0, 0, 0);
  if (setsid() < 0 || drop_bounding_set() != 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      drop_all_capabilities() != 0)
    return fail(failure, "capabilities", errno);
  return 0;
}

static _Noreturn void reap_forever(void) {
  sigset_t child;
  int signal_number;
  sigemptyset(&child);
  sigaddset(&child, SIGCHLD);
  for (;;) {
    while (waitpid(-1, NULL, WNOHANG) > 0)
      continue;
    sigwait(&child, &signal_number);
  }
}

static bool tell(int report, const struct failure *failure) {
  return write_all(report, failure, sizeof *failure) == 0 && failure->step == NULL;
}

/* Reports twice on the pipe, of its namespaces and of the whole: {NULL, 0} when that is ready. */
static _Noreturn void be_init(struct workload *workload, int report) {
  struct failure failure = {NULL, 0};
  struct pollfd reader = {.fd = report, .events = POLLOUT};
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, NULL);
  prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
  if (poll(&reader, 1, 0) < 0 || (reader.revents & POLLERR) != 0)
    _exit(1); /* the parent ended before the signal was asked for */
  prepare(workload, &failure);
  if (!tell(report, &failure))
    _exit(1);
  if (workload->hostname[0] == '\0' && await_order(workload, &failure) > 0)
    _exit(0);
  if (failure.step == NULL && build(workload, &failure) == 0)
    renounce(&failure);
  if (!tell(report, &failure))
    _exit(1);
  /* The descriptors of the guest agent's side end here, the report pipe with them. */
  syscall(SYS_close_range, 3, ~0U, 0);
  reap_forever();
}

static int hear(int report, struct failure *failure) {
  struct failure outcome;
  ssize_t got;
  do
    got = read(report, &outcome, sizeof outcome);
  while (got < 0 && errno == EINTR);
  if (got != (ssize_t)sizeof outcome)
    return fail(failure, "init", ECHILD);
  return outcome.step == NULL ? 0 : fail(failure, outcome.step, outcome.err);
}

/* Returns where PID 1 reports, or -1. */
static int start(struct workload *workload, pid_t *init, struct failure *failure) {
  int report[2];
  if (workload->cgroup_path[0] != '\0' && (workload->cgroup = open_cgroup(workload->cgroup_path)) < 0)
    return fail(failure, "cgroup", errno);
  if (unshare(CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWNET) != 0)
    return fail(failure, "namespaces", errno);
  if (pipe2(report, O_CLOEXEC) != 0)
    return fail(failure, "fork", errno);
  *init = fork();
  if (*init < 0)
    return fail(failure, "fork", errno);
  if (*init == 0) {
    close(report[0]);
    be_init(workload, report[1]);
  }
  close(report[1]);
  return report[0];
}

int workload_main(int argc, char **argv) {
  struct failure failure = {"request", EINVAL};
  struct workload workload = {.cgroup = -1, .root = -1};
  pid_t init = -1;
  bool valid = (argc == 4 || argc == 5) && argv[2][0] == '/' && strlen(argv[2]) <= PATH_MAX_BYTES &&
               (argv[3][0] == '\0' || cgroup_path_valid(argv[3])) && (argc == 4 || hostname_valid(argv[4]));
  if (!valid)
    return answer_failure(1, &failure), 1;
  if (die_with_parent(SIGKILL, getppid()) != 0)
    return 1;
  workload.root_path = argv[2];
  workload.cgroup_path = argv[3];
  if (argc == 5)
    strcpy(workload.hostname, argv[4]);
  int report = start(&workload, &init, &failure);
  if (report < 0 || hear(report, &failure) != 0)
    return answer_failure(1, &failure), 1;
  if (argc == 4 && answer(1, "prepared %d", (int)init) != 0)
    return 1;
  if (hear(report, &failure) != 0)
    return answer_failure(1, &failure), 1;
  close(report);
  if (answer(1, "ready %d", (int)init) != 0)
    return 1;
  while (waitpid(init, NULL, 0) < 0 && errno == EINTR)
    continue;
  return 0;
}
