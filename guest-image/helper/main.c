#include "helper.h"

#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

int main(int argc, char **argv) {
  sigset_t broken_pipe;
  sigemptyset(&broken_pipe);
  sigaddset(&broken_pipe, SIGPIPE);
  sigprocmask(SIG_BLOCK, &broken_pipe, NULL);
  /* Under this name it is the workload's own program, with no rights to guard. */
  const char *slash = argc > 0 ? strrchr(argv[0], '/') : NULL;
  if (argc > 0 && strcmp(slash == NULL ? argv[0] : slash + 1, CLIENT_NAME) == 0)
    return mcp_main(argc);
  /* Nothing in the workload may look into a process that holds the guest agent's rights. */
  prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
  if (argc >= 2 && strcmp(argv[1], "job") == 0 && argc == 2)
    return job_main();
  if (argc >= 2 && strcmp(argv[1], "repair") == 0)
    return repair_main(argc, argv);
  if (argc >= 2 && strcmp(argv[1], "workload-init") == 0)
    return workload_main(argc, argv);
  if (argc >= 2 && strcmp(argv[1], "relay") == 0)
    return relay_main(argc, argv);
  if (argc >= 2 && strcmp(argv[1], "traffic") == 0)
    return traffic_main(argc, argv);
  static const char usage[] = "usage: capsem-helper job | relay PORT | repair MACHINE_ID_PATH | traffic PORT | workload-init ROOT CGROUP [HOSTNAME]\n";
  return write_all(2, usage, sizeof usage - 1) == 0 ? 2 : 3;
}
