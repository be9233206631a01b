#include "helper.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/random.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#define LINE_MAX_BYTES 4096
#define SEED_MAX_BYTES 512
#define FIELDS_MAX 8

struct repair {
  const char *machine_id_path;
  struct machine machine;
  struct disk disk;
};

static int set_clock(const char *seconds, const char *nanos, struct failure *failure) {
  uint64_t s, n;
  if (!parse_u64(seconds, 1, UINT64_C(253402300799), &s) || !parse_u64(nanos, 0, 999999999, &n))
    return fail(failure, "request", EINVAL);
  struct timespec now = {.tv_sec = (time_t)s, .tv_nsec = (long)n};
  return clock_settime(CLOCK_REALTIME, &now) == 0 ? 0 : fail(failure, "clock", errno);
}

static int hex_digit(char c) {
  if (c >= '0' && c <= '9')
    return c - '0';
  if (c >= 'a' && c <= 'f')
    return c - 'a' + 10;
  if (c >= 'A' && c <= 'F')
    return c - 'A' + 10;
  return -1;
}

static int parse_seed(const char *hex, unsigned char *seed) {
  size_t length = strlen(hex);
  if (length < 64 || length > SEED_MAX_BYTES * 2 || length % 2 != 0)
    return -1;
  for (size_t i = 0; i < length; i += 2) {
    int high = hex_digit(hex[i]), low = hex_digit(hex[i + 1]);
    if (high < 0 || low < 0)
      return -1;
    seed[i / 2] = (unsigned char)(high << 4 | low);
  }
  return (int)(length / 2);
}

static bool machine_id_valid(const char *text) {
  if (strlen(text) != 32)
    return false;
  for (const char *at = text; *at != '\0'; at++)
    if (hex_digit(*at) < 0 || (*at >= 'A' && *at <= 'F'))
      return false;
  return true;
}

/* The seed reaches the pool before the reseed, or clones of one golden would draw equal numbers. */
static int add_entropy(const unsigned char *seed, int length, struct failure *failure) {
  struct {
    struct rand_pool_info info;
    unsigned char bytes[SEED_MAX_BYTES];
  } pool;
  int fd = open("/dev/urandom", O_RDWR | O_CLOEXEC);
  if (fd < 0)
    return fail(failure, "entropy", errno);
  pool.info.entropy_count = length * 8;
  pool.info.buf_size = length;
  memcpy(pool.info.buf, seed, (size_t)length);
  int result = 0;
  if (ioctl(fd, RNDADDENTROPY, &pool) != 0)
    result = fail(failure, "entropy", errno);
  else if (ioctl(fd, RNDRESEEDCRNG, 0) != 0)
    result = fail(failure, "reseed", errno);
  explicit_bzero(&pool, sizeof pool);
  close(fd);
  return result;
}

static int write_machine_id(const char *path, const char *machine_id) {
  char text[40], directory[PATH_MAX_BYTES + 1];
  const char *slash = strrchr(path, '/');
  size_t length = (size_t)(slash - path) + 1;
  memcpy(directory, path, length);
  directory[length] = '\0';
  int dir = open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (dir < 0)
    return -1;
  snprintf(text, sizeof text, "%s\n", machine_id);
  int result = write_file_at(dir, slash + 1, text, 0444);
  int saved = errno;
  close(dir);
  errno = saved;
  return result;
}

/* fields: repair SECONDS NANOS HEXSEED HOSTNAME MACHINEID [INITPID] */
static int repair_all(struct repair *repair, char **fields, int count, struct failure *failure) {
  unsigned char seed[SEED_MAX_BYTES];
  uint64_t init = 0, ignored;
  int seed_length = parse_seed(fields[3], seed);
  if (seed_length < 0 || !hostname_valid(fields[4]) || !machine_id_valid(fields[5]) ||
      (count == 7 && !parse_u64(fields[6], 2, PID_MAX, &init)) ||
      !parse_u64(fields[1], 1, UINT64_C(253402300799), &ignored) || !parse_u64(fields[2], 0, 999999999, &ignored))
    return fail(failure, "request", EINVAL);
  if (set_clock(fields[1], fields[2], failure) != 0 || add_entropy(seed, seed_length, failure) != 0)
    return -1;
  explicit_bzero(seed, sizeof seed);
  if (sethostname(fields[4], strlen(fields[4])) != 0)
    return fail(failure, "hostname", errno);
  strcpy(repair->machine.hostname, fields[4]);
  strcpy(repair->machine.machine_id, fields[5]);
  if (write_machine_id(repair->machine_id_path, fields[5]) != 0)
    return fail(failure, "machine-id", errno);
  if (repair->disk.run_dir >= 0 && write_identity(repair->disk.run_dir, &repair->machine) != 0)
    return fail(failure, "identity", errno);
  if (init != 0 && set_hostname_of((pid_t)init, fields[4]) != 0)
    return fail(failure, "workload-hostname", errno);
  return 0;
}

static bool device_valid(const char *device) {
  size_t length = strlen(device);
  if (strncmp(device, "/dev/", 5) != 0 || length < 6 || length > 37)
    return false;
  for (const char *at = device + 5; *at != '\0'; at++)
    if (!((*at >= 'a' && *at <= 'z') || (*at >= '0' && *at <= '9')))
      return false;
  return true;
}

static int block_size(const char *device, uint64_t *bytes, struct failure *failure) {
  int fd = open(device, O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return fail(failure, "open", errno);
  int result = ioctl(fd, BLKGETSIZE64, bytes) == 0 ? 0 : fail(failure, "size", errno);
  close(fd);
  return result;
}

static int split(char *line, char **fields) {
  int count = 0;
  for (char *at = line; count < FIELDS_MAX; at++) {
    fields[count++] = at;
    at = strchr(at, ' ');
    if (at == NULL)
      return count;
    *at = '\0';
  }
  return -1;
}

/* Does one command and answers it, unless it failed: then the caller answers. */
static int serve(struct repair *repair, char *line, struct failure *failure) {
  char *fields[FIELDS_MAX];
  const char *lazy_step = NULL;
  uint64_t bytes;
  int count = split(line, fields);
  const char *command = count > 0 ? fields[0] : "";
  if (strcmp(command, "repair") == 0 && (count == 6 || count == 7)) {
    if (repair_all(repair, fields, count, failure) != 0)
      return -1;
  } else if (strcmp(command, "clock") == 0 && count == 3) {
    if (set_clock(fields[1], fields[2], failure) != 0)
      return -1;
  } else if (strcmp(command, "mount-disk") == 0 && count == 2 && device_valid(fields[1])) {
    if (disk_mount(&repair->disk, fields[1], &repair->machine, failure) != 0)
      return -1;
  } else if (strcmp(command, "unmount-disk") == 0 && count == 1) {
    if (disk_unmount(&repair->disk, &lazy_step, failure) != 0)
      return -1;
    if (lazy_step != NULL)
      return answer(1, "lazy %s", lazy_step);
  } else if (strcmp(command, "sync") == 0 && count == 1) {
    sync();
  } else if (strcmp(command, "block-size") == 0 && count == 2 && device_valid(fields[1])) {
    if (block_size(fields[1], &bytes, failure) != 0)
      return -1;
    return answer(1, "ok %llu", (unsigned long long)bytes);
  } else {
    return fail(failure, "request", EINVAL);
  }
  return answer(1, "ok");
}

/* NUL is refused: the fields are compared as C strings, and what follows it would be ignored. */
static int serve_line(struct repair *repair, char *line, size_t length) {
  struct failure failure = {"request", EINVAL};
  line[length] = '\0';
  if (strlen(line) == length && serve(repair, line, &failure) == 0)
    return 0;
  return answer_failure(1, &failure);
}

int repair_main(int argc, char **argv) {
  static char buffer[LINE_MAX_BYTES];
  struct repair repair = {.disk = {.run_dir = -1}};
  size_t used = 0;
  bool skipping = false;
  if (argc != 3 || argv[2][0] != '/' || strlen(argv[2]) > PATH_MAX_BYTES)
    return 2;
  repair.machine_id_path = argv[2];
  disk_adopt(&repair.disk);
  for (;;) {
    ssize_t got = read(0, buffer + used, sizeof buffer - used);
    if (got < 0 && errno == EINTR)
      continue;
    if (got <= 0)
      return got == 0 ? 0 : 1;
    used += (size_t)got;
    char *start = buffer, *end;
    while ((end = memchr(start, '\n', (size_t)(buffer + used - start))) != NULL) {
      if (!skipping && serve_line(&repair, start, (size_t)(end - start)) != 0)
        return 1;
      skipping = false;
      start = end + 1;
    }
    used = (size_t)(buffer + used - start);
    memmove(buffer, start, used);
    if (used == sizeof buffer) {
      struct failure failure = {"request", EINVAL};
      if (!skipping && answer_failure(1, &failure) != 0)
        return 1;
      skipping = true;
      used = 0;
    }
  }
}
