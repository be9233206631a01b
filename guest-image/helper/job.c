#include "job.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define WORKLOAD_NAMESPACES \
  (CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWNET | CLONE_NEWCGROUP)

/* Everything here happens before the request, so that nothing of it is waited for later. */
static int get_ready(void) {
  struct sigaction plain = {.sa_handler = SIG_DFL};
  sigset_t all;
  for (int fd = 0; fd <= CONTROL_FD; fd++)
    if (fcntl(fd, F_GETFD) < 0)
      return -1;
  for (int number = 1; number <= 64; number++)
    sigaction(number, &plain, NULL); /* some are refused: these are default for ever */
  sigfillset(&all);
  if (sigprocmask(SIG_SETMASK, &all, NULL) != 0)
    return -1;
  /* The bounding set limits only what a later execve can gain, so the zygote itself keeps its rights. */
  if (drop_bounding_set() != 0)
    return -1;
  /* Not SIGKILL: the process group has to be killed first. */
  return die_with_parent(SIGTERM, getppid());
}

/* Refuses our own namespaces: a job started there would be a job of the guest agent. */
static int check_foreign(uint32_t init) {
  static const char *const kinds[] = {"mnt", "pid"};
  struct stat own, other;
  char path[48];
  for (int i = 0; i < 2; i++) {
    snprintf(path, sizeof path, "/proc/self/ns/%s", kinds[i]);
    if (stat(path, &own) != 0)
      return -1;
    snprintf(path, sizeof path, "/proc/%u/ns/%s", init, kinds[i]);
    if (stat(path, &other) != 0)
      return errno = ESRCH, -1;
    if (own.st_ino == other.st_ino && own.st_dev == other.st_dev)
      return errno = EPERM, -1;
  }
  return 0;
}

/* The pidfd comes first: if the number is given to another process meanwhile, setns says ESRCH. */
static int enter_workload(uint32_t init) {
  char path[48];
  int process = (int)syscall(SYS_pidfd_open, (pid_t)init, 0);
  if (process < 0)
    return -1;
  snprintf(path, sizeof path, "/proc/%u/root", init);
  int root = check_foreign(init) == 0 ? open(path, O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
  int result = root < 0 ? -1 : setns(process, WORKLOAD_NAMESPACES);
  if (result == 0 && (fchdir(root) != 0 || chroot(".") != 0))
    result = -1;
  int saved = errno;
  if (root >= 0)
    close(root);
  close(process);
  errno = saved;
  return result;
}

static int run_program(const struct request *request, const struct place_of_work *place, struct failure *failure) {
  struct child child;
  sigset_t watched;
  sigemptyset(&watched);
  sigaddset(&watched, SIGCHLD);
  sigaddset(&watched, SIGTERM);
  int signals = signalfd(-1, &watched, SFD_NONBLOCK | SFD_CLOEXEC);
  if (signals < 0)
    return fail(failure, "fork", errno);
  if (start_child(request, place, &child, failure) != 0)
    return -1;
  answer(CONTROL_FD, "started %d", (int)child.pid); /* a closed agent is seen by the pump */
  return pump(&child, signals, failure);
}

/* The process itself becomes the user: it works with no right that the user lacks, and being
 * outside the workload's pid namespace it cannot be seen or signalled from there. A write learns
 * of the parent's death by the end of stdin and then removes its temporary file. */
static int run_file_operation(const struct request *request, const struct place_of_work *place,
                              pid_t parent, struct failure *failure) {
  static int (*const operations[OP_END])(const struct request *, struct failure *) = {
      [OP_STAT] = file_stat,   [OP_LIST] = file_list,     [OP_READ] = file_read,     [OP_WRITE] = file_write,
      [OP_MKDIR] = tree_mkdir, [OP_RENAME] = tree_rename, [OP_REMOVE] = tree_remove,
  };
  if (place->cgroup >= 0 && join_cgroup(place->cgroup) != 0)
    return fail(failure, "cgroup", errno);
  umask(0);
  if (become(request->uid, request->gid, request->groups, request->group_count) != 0 ||
      (request->op != OP_WRITE && die_with_parent(SIGKILL, parent) != 0))
    return fail(failure, "identity", errno);
  if (chdir(request->cwd) != 0)
    return fail(failure, "cwd", errno);
  return operations[request->op](request, failure);
}

static int do_request(const struct request *request, pid_t parent, struct failure *failure) {
  struct place_of_work place = {.cgroup = -1};
  place.proc_fs = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (place.proc_fs < 0)
    return fail(failure, "namespace", errno);
  if (request->cgroup != NULL && (place.cgroup = open_cgroup(request->cgroup)) < 0)
    return fail(failure, "cgroup", errno);
  if (enter_workload(request->init) != 0)
    return fail(failure, "namespace", errno);
  return request->op == OP_EXEC ? run_program(request, &place, failure)
                                : run_file_operation(request, &place, parent, failure);
}

/* Whoever sends a file may be about to commit it, and whoever runs a program to signal it. A line to a socket that is
 * closed, or was closed with a line unread, breaks it, and its other end then loses the report that was on the way: so
 * lines are taken until that end has read and closed. */
static void linger(void) {
  char line[64];
  shutdown(CONTROL_FD, SHUT_WR);
  close(STDIN_FILENO);
  while (read(CONTROL_FD, line, sizeof line) > 0)
    ;
}

int job_main(void) {
  static struct request request;
  struct failure failure;
  pid_t parent = getppid();
  if (get_ready() != 0)
    return 2;
  int got = receive_request(CONTROL_FD, &request, &failure);
  if (got == 0)
    return 0;
  if (got < 0) {
    answer_failure(CONTROL_FD, &failure);
    return 2;
  }
  int result = do_request(&request, parent, &failure);
  if (result != 0)
    answer_failure(CONTROL_FD, &failure);
  if (request.op == OP_EXEC || (request.op == OP_WRITE && result != 0))
    linger();
  return result == 0 ? 0 : 1;
}
