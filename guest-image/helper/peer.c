#include "traffic.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* The kernel cuts a process's name here. */
#define COMM_BYTES 15
#define TABLE_BYTES 65536
#define PROCESSES_MAX 1024
/* Looked at for one connection: a guest with many open files is not to hold everybody up. */
#define LINKS_MAX 512
#define UNKNOWN "unknown"

static int last_pid; /* whoever connected is likely to do so again */
static int connections;

void peer_init(int table) { connections = table; }

/* Our own thin client stands for the program that started it. */
void name_of_socket(int fd, char name[PROCESS_NAME_BYTES + 1]) {
  struct ucred peer;
  socklen_t length = sizeof peer;
  int parent = 0;
  size_t got = 0;
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.pid > 0)
    got = name_of_process(peer.pid, name, &parent);
  if (got == COMM_BYTES && strncmp(name, CLIENT_NAME, COMM_BYTES) == 0 && parent > 1)
    got = name_of_process(parent, name, NULL);
  if (got == 0)
    strcpy(name, UNKNOWN);
}

/* The row of the other end: "N: LOCAL REMOTE ..." with addresses as the kernel has them in memory. */
static bool find_row(const struct sockaddr_in *theirs, const struct sockaddr_in *ours, unsigned *uid,
                     unsigned long *inode) {
  static char table[TABLE_BYTES + 1];
  char wanted[32];
  snprintf(wanted, sizeof wanted, " %08X:%04X %08X:%04X ", theirs->sin_addr.s_addr, ntohs(theirs->sin_port),
           ours->sin_addr.s_addr, ntohs(ours->sin_port));
  if (lseek(connections, 0, SEEK_SET) != 0)
    return false;
  size_t used = 0;
  ssize_t got;
  while (used < TABLE_BYTES && (got = read(connections, table + used, TABLE_BYTES - used)) > 0)
    used += (size_t)got;
  table[used] = '\0';
  const char *row = strstr(table, wanted);
  if (row == NULL)
    return false;
  /* state, queues, timer, retransmits, uid, timeout, inode */
  char *at = table + (row - table) + strlen(wanted);
  for (int field = 0; field < 4; field++)
    at += strcspn(at, " \n") + strspn(at + strcspn(at, " \n"), " ");
  *uid = (unsigned)strtoul(at, &at, 10);
  strtoul(at, &at, 10);
  *inode = strtoul(at, &at, 10);
  return *inode != 0;
}

static bool holds(int pid, const char *wanted, int *links_left) {
  char path[32], target[64];
  snprintf(path, sizeof path, "/proc/%d/fd", pid);
  DIR *folder = opendir(path);
  struct dirent *entry;
  bool found = false;
  if (folder == NULL)
    return false;
  while (!found && *links_left > 0 && (entry = readdir(folder)) != NULL) {
    ssize_t length = readlinkat(dirfd(folder), entry->d_name, target, sizeof target - 1);
    *links_left -= 1;
    if (length > 0) {
      target[length] = '\0';
      found = strcmp(target, wanted) == 0;
    }
  }
  closedir(folder);
  return found;
}

static int list_processes(int pids[PROCESSES_MAX]) {
  int count = 0;
  DIR *folder = opendir("/proc");
  struct dirent *entry;
  while (folder != NULL && count < PROCESSES_MAX && (entry = readdir(folder)) != NULL)
    if (isdigit((unsigned char)entry->d_name[0]))
      pids[count++] = atoi(entry->d_name);
  if (folder != NULL)
    closedir(folder);
  return count;
}

/* The youngest first: most connections are made by programs that were just started. */
static int find_holder(unsigned uid, unsigned long inode) {
  static int pids[PROCESSES_MAX];
  char wanted[40], path[32];
  struct stat status;
  int links_left = LINKS_MAX;
  snprintf(wanted, sizeof wanted, "socket:[%lu]", inode);
  if (last_pid > 0 && holds(last_pid, wanted, &links_left))
    return last_pid;
  for (int i = list_processes(pids) - 1; i >= 0 && links_left > 0; i--) {
    snprintf(path, sizeof path, "/proc/%d", pids[i]);
    if (stat(path, &status) == 0 && status.st_uid == uid && holds(pids[i], wanted, &links_left))
      return last_pid = pids[i];
  }
  return 0;
}

void name_of_connection(int fd, char name[PROCESS_NAME_BYTES + 1]) {
  struct sockaddr_in theirs, ours;
  socklen_t theirs_length = sizeof theirs, ours_length = sizeof ours;
  unsigned uid;
  unsigned long inode;
  int pid = 0;
  if (getpeername(fd, (struct sockaddr *)&theirs, &theirs_length) == 0 &&
      getsockname(fd, (struct sockaddr *)&ours, &ours_length) == 0 && find_row(&theirs, &ours, &uid, &inode))
    pid = find_holder(uid, inode);
  if (pid == 0 || name_of_process(pid, name, NULL) == 0)
    strcpy(name, "http");
}
