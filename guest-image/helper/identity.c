#include "helper.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int write_identity(int run_dir, const struct machine *machine) {
  char text[256];
  if (machine->machine_id[0] == '\0')
    return 0;
  snprintf(text, sizeof text, "%s\n", machine->machine_id);
  if (write_file_at(run_dir, "machine-id", text, 0444) != 0)
    return -1;
  snprintf(text, sizeof text, "%s\n", machine->hostname);
  if (write_file_at(run_dir, "hostname", text, 0644) != 0)
    return -1;
  /* sudo warns at every start when the hostname has no address. */
  snprintf(text, sizeof text,
           "127.0.0.1\tlocalhost %s\n::1\tlocalhost ip6-localhost ip6-loopback\n" TOOLS_ADDRESS "\t" TOOLS_HOST "\n",
           machine->hostname);
  return write_file_at(run_dir, "hosts", text, 0644);
}

/* A hot VM's workload is older than its name. The caller comes back to its own namespace. */
int set_hostname_of(pid_t init, const char *hostname) {
  char path[48];
  snprintf(path, sizeof path, "/proc/%d/ns/uts", (int)init);
  int own = open("/proc/self/ns/uts", O_RDONLY | O_CLOEXEC);
  if (own < 0)
    return -1;
  int other = open(path, O_RDONLY | O_CLOEXEC);
  int result = other < 0 ? -1 : setns(other, CLONE_NEWUTS);
  if (result == 0) {
    result = sethostname(hostname, strlen(hostname));
    int saved = errno;
    if (setns(own, CLONE_NEWUTS) != 0)
      _exit(1); /* serving on under a foreign name would be worse than being restarted */
    errno = saved;
  }
  int saved = errno;
  if (other >= 0)
    close(other);
  close(own);
  errno = saved;
  return result;
}
