#include "job.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h> /* struct clone_args */
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define OOM_SCORE "500"
#define OPEN_FILES_SOFT 1024

/* What the program gets as 0, 1, 2, and what the zygote keeps. */
struct ends {
  int program[3];
  struct child child;
};

static int program_pipe(uid_t uid, gid_t gid, int *read_end, int *write_end) {
  int pair[2];
  if (pipe2(pair, O_CLOEXEC) != 0)
    return -1;
  *read_end = pair[0];
  *write_end = pair[1];
  /* Else opening /dev/stdout again would be refused to the user. */
  return fchown(pair[0], uid, gid);
}

static int open_pipes(const struct request *request, struct ends *ends) {
  struct child *child = &ends->child;
  if (program_pipe(request->uid, request->gid, &ends->program[0], &child->input) != 0 ||
      program_pipe(request->uid, request->gid, &child->output, &ends->program[1]) != 0 ||
      program_pipe(request->uid, request->gid, &child->errors, &ends->program[2]) != 0)
    return -1;
  int kept[] = {child->input, child->output, child->errors};
  for (int i = 0; i < 3; i++)
    if (fcntl(kept[i], F_SETFL, O_NONBLOCK) != 0)
      return -1;
  return 0;
}

static int open_ends(const struct request *request, struct ends *ends, struct failure *failure) {
  ends->child = (struct child){.pid = -1, .input = -1, .output = -1, .errors = -1};
  if (!has_flag(request, FLAG_TERMINAL))
    return open_pipes(request, ends) == 0 ? 0 : fail(failure, "fork", errno);
  int master = -1, slave = -1;
  if (open_terminal(request, &master, &slave) != 0)
    return fail(failure, "terminal", errno);
  ends->child.terminal = true;
  ends->child.input = master;
  ends->child.output = master;
  for (int i = 0; i < 3; i++)
    ends->program[i] = slave;
  return 0;
}

static int limit_self(const struct place_of_work *place) {
  struct rlimit files;
  int fd = openat(place->proc_fs, "self/oom_score_adj", O_WRONLY | O_CLOEXEC);
  if (fd < 0 || write_all(fd, OOM_SCORE, strlen(OOM_SCORE)) != 0 || close(fd) != 0)
    return -1;
  /* The guest agent runs at -20 and Node raises its own limit of open files. */
  if (setpriority(PRIO_PROCESS, 0, 0) != 0 || getrlimit(RLIMIT_NOFILE, &files) != 0)
    return -1;
  if (files.rlim_max > OPEN_FILES_SOFT)
    files.rlim_cur = OPEN_FILES_SOFT;
  return setrlimit(RLIMIT_NOFILE, &files);
}

/* Being born in the cgroup costs nothing, where joining it later waits for an RCU grace period.
 * At the cgroup's pids.max only joining still works, and a user at that limit needs a shell. */
static pid_t fork_into(int cgroup, bool *joined) {
  struct clone_args arguments = {
      .flags = CLONE_INTO_CGROUP, .exit_signal = SIGCHLD, .cgroup = (uint64_t)(unsigned)cgroup};
  *joined = cgroup >= 0;
  pid_t pid = cgroup >= 0 ? (pid_t)syscall(SYS_clone3, &arguments, sizeof arguments) : fork();
  if (pid < 0 && cgroup >= 0 && errno == EAGAIN) {
    *joined = false;
    pid = fork();
  }
  return pid;
}

/* After this only 0, 1, 2 and the report pipe (3, closed by execve) are open. */
static int take_descriptors(const struct ends *ends, int report) {
  if (ends->child.terminal && ioctl(ends->program[0], TIOCSCTTY, 0) != 0)
    return -1;
  for (int i = 0; i < 3; i++)
    if (dup2(ends->program[i], i) < 0)
      return -1;
  if (dup3(report, CONTROL_FD, O_CLOEXEC) < 0)
    return -1;
  return (int)syscall(SYS_close_range, CONTROL_FD + 1, ~0U, 0);
}

static int prepare_program(const struct request *request, const struct place_of_work *place,
                           const struct ends *ends, int report, bool joined, struct failure *failure) {
  if (setsid() < 0)
    return fail(failure, "fork", errno);
  if (place->cgroup >= 0 && ((!joined && join_cgroup(place->cgroup) != 0) || unshare(CLONE_NEWCGROUP) != 0))
    return fail(failure, "cgroup", errno);
  if (limit_self(place) != 0)
    return fail(failure, "identity", errno);
  if (take_descriptors(ends, report) != 0)
    return fail(failure, ends->child.terminal ? "terminal" : "fork", errno);
  umask(022);
  if (become(request->uid, request->gid, request->groups, request->group_count) != 0)
    return fail(failure, "identity", errno);
  struct pollfd reader = {.fd = CONTROL_FD, .events = POLLOUT};
  if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0 || poll(&reader, 1, 0) < 0)
    return fail(failure, "identity", errno);
  if ((reader.revents & POLLERR) != 0)
    _exit(127); /* the zygote ended before the signal was asked for */
  return chdir(request->cwd) == 0 ? 0 : fail(failure, "cwd", errno);
}

static _Noreturn void be_program(const struct request *request, const struct place_of_work *place,
                                 const struct ends *ends, int report, bool joined) {
  struct failure failure;
  sigset_t none;
  if (prepare_program(request, place, ends, report, joined, &failure) == 0) {
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    environ = request->env; /* execvpe reads PATH from here */
    execvpe(request->args[0], request->args, request->env);
    fail(&failure, "exec", errno);
    report = CONTROL_FD;
  }
  /* The step names point into the binary that both processes run. Before take_descriptors the
   * pipe is still at its old number; after it the old number is closed. */
  if (write(report, &failure, sizeof failure) < 0)
    (void)!write(CONTROL_FD, &failure, sizeof failure);
  _exit(127);
}

int start_child(const struct request *request, const struct place_of_work *place, struct child *child,
                struct failure *failure) {
  struct ends ends;
  struct failure outcome;
  int report[2];
  bool joined;
  ssize_t got;
  if (open_ends(request, &ends, failure) != 0)
    return -1;
  if (pipe2(report, O_CLOEXEC) != 0)
    return fail(failure, "fork", errno);
  pid_t pid = fork_into(place->cgroup, &joined);
  if (pid < 0)
    return fail(failure, place->cgroup >= 0 && errno != ENOMEM ? "cgroup" : "fork", errno);
  if (pid == 0)
    be_program(request, place, &ends, report[1], joined);
  close(report[1]);
  for (int i = 0; i < (ends.child.terminal ? 1 : 3); i++)
    close(ends.program[i]);
  do
    got = read(report[0], &outcome, sizeof outcome);
  while (got < 0 && errno == EINTR);
  close(report[0]);
  if (got == (ssize_t)sizeof outcome)
    return fail(failure, outcome.step, outcome.err);
  *child = ends.child;
  child->pid = pid;
  return 0;
}
