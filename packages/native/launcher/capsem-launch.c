// Confines itself, then becomes the command that an owner asked for. It never forks: the pid that the owner
// spawned is the command's, and it dies with the owner.
//
//   capsem-launch --parent PID [--uid N --gid N | --as-root-ok] [--read PATH]... [--exec PATH]... [--write PATH]... [--tree PATH]...
//     [--read-fd N]... [--write-fd N]... [--keep-fd N]... [--nofile N] [--fsize BYTES] [--may-dial]
//     [--landlock require|try|off] [--net-namespace require|try|off] [--capability setuid|setgid|kill]...
//     [--env NAME=VALUE]... [--filter HEX] -- /ABSOLUTE/COMMAND ARGS...
//
// The order matters: the parent's death is watched first and once more last, descriptors close before new ones
// open, Landlock's paths open while there are still rights to open them, the filter stands last, just before exec.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <linux/securebits.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

// One exit code for each step, so that an owner knows what failed without reading text.
enum step {
  STEP_PARENT = 90,
  STEP_USAGE = 91,
  STEP_SESSION = 92,
  STEP_DESCRIPTORS = 93,
  STEP_LIMITS = 94,
  STEP_NAMESPACES = 95,
  STEP_CREDENTIALS = 96,
  STEP_LANDLOCK = 97,
  STEP_PRIVILEGES = 98,
  STEP_EXEC = 99,
};

enum strictness { OFF, TRY, REQUIRE };
enum access { READ, EXEC, WRITE, TREE };

#define GRANTS_MAX 256
#define KEPT_MAX 64
#define VARIABLES_MAX 16
#define FILTER_MAX 1024
// In a filter: equal to the command's own pid, which nobody knows before it runs. No pid is so large.
#define FILTER_SELF 0x7fffffffU

// A file or folder that the command may use: by path, or (path == NULL) by an inherited descriptor.
struct grant {
  enum access access;
  const char *path;
  int fd;
};

struct options {
  pid_t parent;
  bool has_uid, has_gid, as_root_ok, may_dial;
  uid_t uid;
  gid_t gid;
  struct grant grants[GRANTS_MAX];
  size_t grants_count;
  int kept[KEPT_MAX];
  size_t kept_count;
  rlim_t nofile, fsize;
  enum strictness landlock, net_namespace;
  uint32_t capabilities; // Bits of the first word: all that can be named are in it.
  char *variables[VARIABLES_MAX];
  size_t variables_count;
  struct sock_filter filter[FILTER_MAX]; // A seccomp program, compiled by packages/jail.
  unsigned short filter_count;
  char **command;
};

static _Noreturn void fail_because(enum step step, const char *what, const char *why) {
  fprintf(stderr, "capsem-launch: %s: %s\n", what, why);
  exit(step);
}

static _Noreturn void fail(enum step step, const char *what) {
  const char *name = strerrorname_np(errno);
  fail_because(step, what, name == NULL ? "unknown errno" : name);
}

// ---- Options

static uint64_t parse_number(const char *option, const char *text, uint64_t maximum) {
  char *end = NULL;
  errno = 0;
  const unsigned long long value = strtoull(text, &end, 10);
  if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0 || value > maximum)
    fail_because(STEP_USAGE, option, "not a number in range");
  return value;
}

static enum strictness parse_strictness(const char *option, const char *text) {
  if (strcmp(text, "require") == 0) return REQUIRE;
  if (strcmp(text, "try") == 0) return TRY;
  if (strcmp(text, "off") == 0) return OFF;
  fail_because(STEP_USAGE, option, "not one of its words");
}

static uint32_t parse_capability(const char *option, const char *text) {
  if (strcmp(text, "setuid") == 0) return 1U << CAP_SETUID;
  if (strcmp(text, "setgid") == 0) return 1U << CAP_SETGID;
  if (strcmp(text, "kill") == 0) return 1U << CAP_KILL;
  fail_because(STEP_USAGE, option, "not one of its words");
}

static void add_variable(struct options *options, char *text) {
  const char *end = strchr(text, '=');
  if (options->variables_count == VARIABLES_MAX) fail_because(STEP_USAGE, "--env", "too many");
  if (end == NULL || end == text) fail_because(STEP_USAGE, "--env", "not NAME=VALUE");
  options->variables[options->variables_count++] = text;
}

static uint8_t parse_hex_byte(const char *option, const char *text) {
  uint8_t value = 0;
  for (int i = 0; i < 2; i++) {
    const char digit = text[i];
    if (digit >= '0' && digit <= '9') value = (uint8_t)(value << 4 | (digit - '0'));
    else if (digit >= 'a' && digit <= 'f') value = (uint8_t)(value << 4 | (digit - 'a' + 10));
    else fail_because(STEP_USAGE, option, "not lower-case hexadecimal");
  }
  return value;
}

// The kernel's records in the machine's order, eight bytes each. The kernel checks what the program does.
static void parse_filter(struct options *options, const char *option, const char *text) {
  const size_t size = sizeof options->filter[0], length = strlen(text);
  if (options->filter_count != 0) fail_because(STEP_USAGE, option, "more than one");
  if (length == 0 || length % (size * 2) != 0 || length / (size * 2) > FILTER_MAX)
    fail_because(STEP_USAGE, option, "not a whole number of instructions");
  uint8_t *bytes = (uint8_t *)options->filter;
  for (size_t i = 0; i < length / 2; i++) bytes[i] = parse_hex_byte(option, text + 2 * i);
  options->filter_count = (unsigned short)(length / (size * 2));
}

static void add_grant(struct options *options, enum access access, const char *path, int fd) {
  if (options->grants_count == GRANTS_MAX) fail_because(STEP_USAGE, "grants", "too many");
  if (path != NULL && path[0] != '/') fail_because(STEP_USAGE, path, "not an absolute path");
  options->grants[options->grants_count++] = (struct grant){access, path, fd};
}

static void add_kept(struct options *options, int fd) {
  // Rising, so that the gaps between them can be closed in one pass.
  const int least = options->kept_count == 0 ? 3 : options->kept[options->kept_count - 1] + 1;
  if (options->kept_count == KEPT_MAX) fail_because(STEP_USAGE, "--keep-fd", "too many");
  if (fd < least) fail_because(STEP_USAGE, "--keep-fd", "not above 2 and rising");
  options->kept[options->kept_count++] = fd;
}

static void parse_option(struct options *options, const char *name, char *value) {
  if (strcmp(name, "--parent") == 0) options->parent = (pid_t)parse_number(name, value, INT32_MAX);
  else if (strcmp(name, "--uid") == 0) {
    options->uid = (uid_t)parse_number(name, value, UINT32_MAX - 1);
    options->has_uid = true;
  } else if (strcmp(name, "--gid") == 0) {
    options->gid = (gid_t)parse_number(name, value, UINT32_MAX - 1);
    options->has_gid = true;
  } else if (strcmp(name, "--read") == 0) add_grant(options, READ, value, -1);
  else if (strcmp(name, "--exec") == 0) add_grant(options, EXEC, value, -1);
  else if (strcmp(name, "--write") == 0) add_grant(options, WRITE, value, -1);
  else if (strcmp(name, "--tree") == 0) add_grant(options, TREE, value, -1);
  else if (strcmp(name, "--read-fd") == 0)
    add_grant(options, READ, NULL, (int)parse_number(name, value, INT32_MAX));
  else if (strcmp(name, "--write-fd") == 0)
    add_grant(options, WRITE, NULL, (int)parse_number(name, value, INT32_MAX));
  else if (strcmp(name, "--keep-fd") == 0) add_kept(options, (int)parse_number(name, value, INT32_MAX));
  else if (strcmp(name, "--nofile") == 0) options->nofile = parse_number(name, value, 1 << 20);
  else if (strcmp(name, "--fsize") == 0) options->fsize = parse_number(name, value, INT64_MAX);
  else if (strcmp(name, "--landlock") == 0) options->landlock = parse_strictness(name, value);
  else if (strcmp(name, "--net-namespace") == 0) options->net_namespace = parse_strictness(name, value);
  else if (strcmp(name, "--capability") == 0) options->capabilities |= parse_capability(name, value);
  else if (strcmp(name, "--env") == 0) add_variable(options, value);
  else if (strcmp(name, "--filter") == 0) parse_filter(options, name, value);
  else fail_because(STEP_USAGE, name, "unknown option");
}

static void parse_options(struct options *options, int count, char **words) {
  int i = 1;
  while (i < count && strcmp(words[i], "--") != 0) {
    if (strcmp(words[i], "--as-root-ok") == 0) {
      options->as_root_ok = true;
      i += 1;
      continue;
    }
    if (strcmp(words[i], "--may-dial") == 0) {
      options->may_dial = true;
      i += 1;
      continue;
    }
    if (i + 1 >= count) fail_because(STEP_USAGE, words[i], "its value is missing");
    parse_option(options, words[i], words[i + 1]);
    i += 2;
  }
  if (i + 1 >= count) fail_because(STEP_USAGE, "command", "missing");
  options->command = words + i + 1;
  if (options->command[0][0] != '/') fail_because(STEP_USAGE, "command", "not an absolute path");
  if (options->parent <= 0) fail_because(STEP_USAGE, "--parent", "missing");
  if (options->has_uid != options->has_gid) fail_because(STEP_USAGE, "--uid and --gid", "one without the other");
  if (options->has_uid && (options->uid == 0 || options->gid == 0))
    fail_because(STEP_USAGE, "--uid and --gid", "root is no user to drop to");
  if (geteuid() == 0 && !options->has_uid && !options->as_root_ok)
    fail_because(STEP_USAGE, "--uid", "root needs it, or --as-root-ok");
  if (options->capabilities != 0 && (options->has_uid || !options->as_root_ok))
    fail_because(STEP_USAGE, "--capability", "only for a command that stays root");
}

// ---- Steps

// A parent that died before the first line here is found by its pid; one that dies later sends the signal.
static void watch_parent(pid_t parent) {
  if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0) fail(STEP_PARENT, "parent-death signal");
  if (getppid() != parent) fail_because(STEP_PARENT, "parent", "not the one that was named");
}

static void start_session(void) {
  if (setsid() < 0 && getsid(0) != getpid()) fail(STEP_SESSION, "setsid");
  umask(077);
}

static void close_range_or_fail(unsigned first, unsigned last) {
  if (first <= last && syscall(SYS_close_range, first, last, 0) < 0) fail(STEP_DESCRIPTORS, "close_range");
}

static void keep_descriptors(const struct options *options) {
  // A free standard number would be given to the next file that opens.
  for (int fd = 0; fd < 3; fd++)
    if (fcntl(fd, F_GETFD) < 0) fail(STEP_DESCRIPTORS, "standard descriptors");
  unsigned first = 3;
  for (size_t i = 0; i < options->kept_count; i++) {
    const int fd = options->kept[i];
    if (fcntl(fd, F_SETFD, 0) < 0) fail(STEP_DESCRIPTORS, "--keep-fd");
    close_range_or_fail(first, (unsigned)fd - 1);
    first = (unsigned)fd + 1;
  }
  close_range_or_fail(first, ~0U);
}

static void limit(int resource, rlim_t value, const char *what) {
  if (setrlimit(resource, &(struct rlimit){value, value}) < 0) fail(STEP_LIMITS, what);
}

static void set_limits(const struct options *options) {
  limit(RLIMIT_CORE, 0, "core limit");
  if (options->nofile != RLIM_INFINITY) {
    // A tighter limit of the caller's own stands: to lift it would need a right.
    struct rlimit held;
    if (getrlimit(RLIMIT_NOFILE, &held) < 0) fail(STEP_LIMITS, "--nofile");
    limit(RLIMIT_NOFILE, options->nofile < held.rlim_max ? options->nofile : held.rlim_max, "--nofile");
  }
  if (options->fsize != RLIM_INFINITY) limit(RLIMIT_FSIZE, options->fsize, "--fsize");
}

static void write_map(const char *path, const char *text) {
  const int fd = open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0 || write(fd, text, strlen(text)) < 0) fail(STEP_NAMESPACES, path);
  close(fd);
}

static void enter_namespaces(const struct options *options) {
  if (options->net_namespace == OFF) return;
  const int wanted = CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS;
  const uid_t uid = geteuid();
  const gid_t gid = getegid();
  if (unshare(wanted | (uid == 0 ? 0 : CLONE_NEWUSER)) < 0) {
    if (options->net_namespace == REQUIRE) fail(STEP_NAMESPACES, "unshare");
    return;
  }
  if (uid == 0) return;
  char map[64];
  write_map("/proc/self/setgroups", "deny");
  snprintf(map, sizeof map, "%u %u 1", uid, uid);
  write_map("/proc/self/uid_map", map);
  snprintf(map, sizeof map, "%u %u 1", gid, gid);
  write_map("/proc/self/gid_map", map);
}

// ---- Landlock, by its stable kernel interface: many systems' headers are older than their kernel.

#define LANDLOCK_CREATE 444
#define LANDLOCK_ADD 445
#define LANDLOCK_RESTRICT 446
#define ABI_MAX 7

struct ruleset_attributes {
  uint64_t filesystem, network, scoped;
};
struct path_rule {
  uint64_t allowed;
  int32_t fd;
} __attribute__((packed));

#define FS_EXECUTE (1ULL << 0)
#define FS_WRITE_FILE (1ULL << 1)
#define FS_READ_FILE (1ULL << 2)
#define FS_READ_DIR (1ULL << 3)
#define FS_REMOVE_DIR (1ULL << 4)
#define FS_REMOVE_FILE (1ULL << 5)
#define FS_MAKE_DIR (1ULL << 7)
#define FS_MAKE_REGULAR (1ULL << 8)
#define FS_REFER (1ULL << 13)
#define FS_TRUNCATE (1ULL << 14)
#define FS_IOCTL_DEVICE (1ULL << 15)
#define ONLY_FILES (FS_EXECUTE | FS_WRITE_FILE | FS_READ_FILE | FS_TRUNCATE | FS_IOCTL_DEVICE)

// Every file system right that an ABI knows; what is handled and not granted is denied.
static const uint64_t HANDLED[ABI_MAX + 1] = {0,      0x1fff, 0x3fff, 0x7fff, 0x7fff, 0xffff, 0xffff, 0xffff};
#define WRITING \
  (FS_READ_FILE | FS_READ_DIR | FS_WRITE_FILE | FS_TRUNCATE | FS_IOCTL_DEVICE | FS_REMOVE_FILE | FS_MAKE_REGULAR)
static const uint64_t ALLOWED[] = {
    [READ] = FS_READ_FILE | FS_READ_DIR,
    [EXEC] = FS_READ_FILE | FS_READ_DIR | FS_EXECUTE,
    [WRITE] = WRITING,
    // Folders too, and files from one into another: below this one.
    [TREE] = WRITING | FS_MAKE_DIR | FS_REMOVE_DIR | FS_REFER,
};

static void allow(int ruleset, const struct grant *grant, uint64_t handled) {
  const char *what = grant->path == NULL ? "granted descriptor" : grant->path;
  const int fd = grant->path == NULL ? grant->fd : open(grant->path, O_PATH | O_CLOEXEC);
  struct stat status;
  if (fd < 0 || fstat(fd, &status) < 0) fail(STEP_LANDLOCK, what);
  const uint64_t fitting = S_ISDIR(status.st_mode) ? ~0ULL : ONLY_FILES;
  const struct path_rule rule = {ALLOWED[grant->access] & handled & fitting, fd};
  // EBADFD: a memory file lies in no folder; Landlock lets its holder open it again without a rule.
  if (syscall(LANDLOCK_ADD, ruleset, 1, &rule, 0) < 0 && !(grant->path == NULL && errno == EBADFD))
    fail(STEP_LANDLOCK, what);
  if (grant->path != NULL) close(fd);
}

// Opens every granted path while this process can still reach them. Returns -1 when it may go without.
static int prepare_landlock(const struct options *options) {
  if (options->landlock == OFF) return -1;
  const long version = syscall(LANDLOCK_CREATE, NULL, 0, 1);
  if (version < 1 && options->landlock == TRY) return -1;
  if (version < 1) fail(STEP_LANDLOCK, "landlock");
  const long abi = version > ABI_MAX ? ABI_MAX : version;
  const struct ruleset_attributes attributes = {
      .filesystem = HANDLED[abi],
      .network = abi < 4 ? 0 : options->may_dial ? 1 : 3, // No TCP bind, no TCP connect.
      .scoped = abi >= 6 ? 3 : 0,  // No abstract socket and no signal to a process outside.
  };
  const size_t size = abi >= 6 ? 24 : abi >= 4 ? 16 : 8;
  const int ruleset = (int)syscall(LANDLOCK_CREATE, &attributes, size, 0);
  if (ruleset < 0) fail(STEP_LANDLOCK, "ruleset");
  for (size_t i = 0; i < options->grants_count; i++) allow(ruleset, &options->grants[i], HANDLED[abi]);
  return ruleset;
}

static void enforce_landlock(int ruleset) {
  if (ruleset < 0) return;
  if (syscall(LANDLOCK_RESTRICT, ruleset, 0) < 0) fail(STEP_LANDLOCK, "restrict");
  close(ruleset);
}

// ---- Credentials

// Ambient: the one set that an exec by root under SECBIT_NOROOT hands on. Before the bounding set empties, since
// nothing can be made inheritable after that.
static void make_ambient(uint32_t capabilities) {
  if (capabilities == 0) return;
  struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  struct __user_cap_data_struct held[2] = {0};
  if (syscall(SYS_capget, &header, held) < 0) fail(STEP_CREDENTIALS, "capget");
  if ((held[0].permitted & capabilities) != capabilities)
    fail_because(STEP_CREDENTIALS, "--capability", "not held");
  held[0].inheritable = capabilities;
  held[1].inheritable = 0;
  if (syscall(SYS_capset, &header, held) < 0) fail(STEP_CREDENTIALS, "capset");
  for (unsigned long bit = 0; bit < 32; bit++)
    if ((capabilities & (1U << bit)) != 0 && prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, bit, 0, 0) < 0)
      fail(STEP_CREDENTIALS, "ambient set");
}

static void drop_bounding_set(void) {
  struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  struct __user_cap_data_struct held[2] = {0};
  if (syscall(SYS_capget, &header, held) < 0) fail(STEP_CREDENTIALS, "capget");
  // Without this right there is nothing to drop: no capability is held, and exec cannot give one any more.
  if ((held[0].effective & (1U << CAP_SETPCAP)) == 0) return;
  const unsigned long bits = SECBIT_NOROOT | SECBIT_NOROOT_LOCKED | SECBIT_NO_SETUID_FIXUP_LOCKED |
                             SECBIT_KEEP_CAPS_LOCKED | SECBIT_NO_CAP_AMBIENT_RAISE |
                             SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED;
  if (prctl(PR_SET_SECUREBITS, bits, 0, 0, 0) < 0) fail(STEP_CREDENTIALS, "securebits");
  for (unsigned long capability = 0; prctl(PR_CAPBSET_READ, capability, 0, 0, 0) >= 0; capability++)
    if (prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) < 0) fail(STEP_CREDENTIALS, "bounding set");
}

static void change_user(const struct options *options) {
  if (!options->has_uid) return;
  const uid_t uid = options->uid;
  const gid_t gid = options->gid;
  if (setgroups(0, NULL) < 0) fail(STEP_CREDENTIALS, "setgroups");
  if (setresgid(gid, gid, gid) < 0) fail(STEP_CREDENTIALS, "setgid");
  if (setresuid(uid, uid, uid) < 0) fail(STEP_CREDENTIALS, "setuid");
}

static void drop_capabilities(uint32_t kept) {
  struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  const struct __user_cap_data_struct left[2] = {{kept, kept, kept}, {0, 0, 0}};
  if (syscall(SYS_capset, &header, left) < 0) fail(STEP_CREDENTIALS, "capset");
}

// ---- Filter

// Landlock says nothing of a Unix socket that is connected by its path, nor a network namespace. Needs no privilege,
// only that no new ones can be gained.
static void install_filter(struct options *options) {
  if (options->filter_count == 0) return;
  for (size_t i = 0; i < options->filter_count; i++) {
    struct sock_filter *step = &options->filter[i];
    if (step->code == (BPF_JMP | BPF_JEQ | BPF_K) && step->k == FILTER_SELF) step->k = (uint32_t)getpid();
  }
  const struct sock_fprog program = {options->filter_count, options->filter};
  if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) < 0) fail(STEP_PRIVILEGES, "seccomp filter");
}

// ---- Environment

static void keep_variable(const char *name, char *into, size_t size, char **environment) {
  const char *value = getenv(name);
  if (value == NULL) return;
  if ((size_t)snprintf(into, size, "%s=%s", name, value) >= size) return; // Absurdly long: as if unset.
  while (*environment != NULL) environment++;
  *environment = into;
}

int main(int count, char **words) {
  static struct options options = {
      .nofile = RLIM_INFINITY, .fsize = RLIM_INFINITY, .landlock = REQUIRE, .net_namespace = REQUIRE};
  static char path[4096], language[256];
  static char *environment[3 + VARIABLES_MAX];

  parse_options(&options, count, words);
  watch_parent(options.parent);
  start_session();
  keep_descriptors(&options);
  set_limits(&options);
  const int ruleset = prepare_landlock(&options);
  enter_namespaces(&options);
  make_ambient(options.capabilities);
  drop_bounding_set();
  change_user(&options);
  drop_capabilities(options.capabilities);
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0) fail(STEP_PRIVILEGES, "no new privileges");
  enforce_landlock(ruleset);
  watch_parent(options.parent); // A change of credentials cleared the signal.
  keep_variable("PATH", path, sizeof path, environment);
  keep_variable("LANG", language, sizeof language, environment);
  for (size_t i = 0, at = 0; i < options.variables_count; i++) {
    while (environment[at] != NULL) at++;
    environment[at] = options.variables[i];
  }
  install_filter(&options);
  execve(options.command[0], options.command, environment);
  fail(STEP_EXEC, options.command[0]);
}
