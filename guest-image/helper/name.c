#include "helper.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STAT_BYTES 512

/* Bytes of the UTF-8 sequence at `at` that is whole and allowed, else 0. */
size_t utf8_length(const unsigned char *at, size_t left) {
  if (at[0] < 0x80)
    return 1;
  size_t length = at[0] >= 0xf0 ? 4 : at[0] >= 0xe0 ? 3 : 2;
  if (at[0] < 0xc2 || at[0] > 0xf4 || left < length)
    return 0;
  for (size_t i = 1; i < length; i++)
    if ((at[i] & 0xc0) != 0x80)
      return 0;
  bool is_overlong = (at[0] == 0xe0 && at[1] < 0xa0) || (at[0] == 0xf0 && at[1] < 0x90);
  bool is_surrogate = at[0] == 0xed && at[1] >= 0xa0;
  bool is_too_large = at[0] == 0xf4 && at[1] >= 0x90;
  return is_overlong || is_surrogate || is_too_large ? 0 : length;
}

size_t name_clean(const char *from, size_t length, char name[PROCESS_NAME_BYTES + 1]) {
  const unsigned char *at = (const unsigned char *)from;
  size_t used = 0;
  while (length > 0) {
    size_t taken = utf8_length(at, length);
    bool is_plain = taken > 0 && at[0] > ' ' && at[0] != 0x7f && !(at[0] == 0xc2 && at[1] < 0xa1);
    size_t put = is_plain ? taken : 1;
    if (used + put > PROCESS_NAME_BYTES)
      break;
    if (is_plain)
      memcpy(name + used, at, taken);
    else
      name[used] = '_';
    used += put;
    taken += taken == 0;
    at += taken;
    length -= taken;
  }
  name[used] = '\0';
  return used;
}

/* "PID (COMM) STATE PPID ...": COMM may hold anything, also parentheses. */
size_t name_of_process(int pid, char name[PROCESS_NAME_BYTES + 1], int *parent) {
  char path[32], text[STAT_BYTES];
  snprintf(path, sizeof path, "/proc/%d/stat", pid);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return 0;
  ssize_t got = read(fd, text, sizeof text - 1);
  close(fd);
  if (got <= 0)
    return 0;
  text[got] = '\0';
  char *begin = strchr(text, '('), *end = strrchr(text, ')');
  if (begin == NULL || end == NULL || end <= begin + 1)
    return 0;
  if (parent != NULL)
    *parent = strlen(end) > 4 ? atoi(end + 4) : 0;
  return name_clean(begin + 1, (size_t)(end - begin - 1), name);
}
