/* The zygote's own parts: request, report on fd 3, program, file operations. */
#ifndef CAPSEM_HELPER_JOB_H
#define CAPSEM_HELPER_JOB_H

#include "helper.h"

#define CONTROL_FD 3
#define REQUEST_MAX_BYTES 2097152u
#define REQUEST_MIN_BYTES 5u
#define GROUPS_MAX 64
#define ARGS_MAX 16384
#define ENV_MAX 4096
#define TERMINAL_SIDE_MAX 1000
#define LIST_ENTRIES_MAX 4096
#define LIST_ENTRIES_DEFAULT 256

enum op { OP_EXEC = 1, OP_STAT, OP_LIST, OP_READ, OP_WRITE, OP_MKDIR, OP_RENAME, OP_REMOVE, OP_END };

enum tag {
  TAG_OP = 1,
  TAG_INIT,
  TAG_CGROUP,
  TAG_ARG,
  TAG_ENV,
  TAG_CWD,
  TAG_UID,
  TAG_GID,
  TAG_GROUP,
  TAG_FLAGS,
  TAG_COLS,
  TAG_ROWS,
  TAG_PATH,
  TAG_PATH2,
  TAG_OFFSET,
  TAG_LENGTH,
  TAG_MODE,
  TAG_END
};

enum flag {
  FLAG_TERMINAL = 1,
  FLAG_PARENTS = 2,
  FLAG_RECURSIVE = 4,
  FLAG_FOLLOW = 8,
  FLAG_IN_PLACE = 16,
  FLAG_CREATE = 32,
  FLAG_TRUNCATE = 64,
  FLAG_EXCLUSIVE = 128,
  FLAG_SYNC = 256,
  FLAG_HAND_OVER = 512,
};

struct request {
  uint32_t present; /* 1 << tag for each tag that came */
  uint8_t op;
  uint32_t init;
  uint32_t uid, gid;
  uint32_t flags;
  uint32_t cols, rows;
  uint32_t mode;
  uint64_t offset, length;
  char *cgroup, *cwd, *path, *path2;
  char **args, **env; /* both end with NULL */
  size_t arg_count, env_count, group_count;
  gid_t groups[GROUPS_MAX];
};

static inline bool has_tag(const struct request *request, enum tag tag) {
  return (request->present & (1u << tag)) != 0;
}
static inline bool has_flag(const struct request *request, enum flag flag) {
  return (request->flags & (uint32_t)flag) != 0;
}

/* request.c: 1 = a request, 0 = the agent closed before it began one, -1 = malformed */
int receive_request(int fd, struct request *request, struct failure *failure);

/* spawn.c */
struct child {
  pid_t pid; /* also its session and process group, in the agent's pid namespace */
  int input;  /* to the program, -1 when closed */
  int output; /* from the program */
  int errors; /* -1 for a terminal */
  bool terminal;
};
struct place_of_work {
  int cgroup;  /* the job's, as a directory, -1 for none */
  int proc_fs; /* the agent's /proc, to reach oom_score_adj without a path of the workload */
};
int start_child(const struct request *request, const struct place_of_work *place, struct child *child,
                struct failure *failure);

/* terminal.c */
int open_terminal(const struct request *request, int *master, int *slave);
int resize_terminal(int master, uint16_t cols, uint16_t rows);
char end_of_input_of(int master);

/* pump.c: moves bytes until the program has ended; answers the last line itself */
int pump(struct child *child, int signals, struct failure *failure);

/* entry.c, write.c, tree.c: as the user, inside the workload root */
int file_stat(const struct request *request, struct failure *failure);
int file_list(const struct request *request, struct failure *failure);
int file_read(const struct request *request, struct failure *failure);
int file_write(const struct request *request, struct failure *failure);
int tree_mkdir(const struct request *request, struct failure *failure);
int tree_rename(const struct request *request, struct failure *failure);
int tree_remove(const struct request *request, struct failure *failure);
int make_parents(const char *path, mode_t mode);

#endif
