#include "relay.h"

#include <string.h>

#define PREFIX_BYTES 9 /* u32 length, u8 type, u32 stream */
#define COUNTED_BYTES_MIN 5u
#define COUNTED_BYTES_MAX 65536u
#define TYPE_WINDOW 4
#define WINDOW_BYTES 13

/* What came of a frame's beginning and is not handed on yet. */
static unsigned char held[FOLLOW_HEADROOM];
static size_t held_length;
static uint32_t payload_left;
static bool is_following;
static uint64_t handed; /* bytes that the agent has or will have */

void follow_from(uint64_t boundary) {
  if (is_following || boundary != handed)
    return;
  is_following = true;
  payload_left = 0;
}

size_t follow_release(unsigned char *at) {
  size_t length = held_length;
  is_following = false;
  held_length = 0;
  memcpy(at, held, length);
  handed += length;
  return length;
}

/* Keeps what is the agent's, from `at` on; returns how much. `end` is moved back to where a begun frame starts. */
static size_t sift(unsigned char *at, unsigned char **end) {
  unsigned char *to = at, *from = at;
  while (from < *end) {
    size_t there = (size_t)(*end - from), most = payload_left < there ? payload_left : there;
    if (payload_left == 0) {
      if (there < PREFIX_BYTES)
        break;
      uint32_t length = get_u32(from);
      if (length < COUNTED_BYTES_MIN || length > COUNTED_BYTES_MAX) {
        is_following = false; /* a new generation starts, or what the agent will not like either */
        most = there;
      } else if (from[4] == TYPE_WINDOW && length == WINDOW_BYTES - 4 && body_sends(get_u32(from + 5))) {
        if (there < WINDOW_BYTES)
          break;
        body_grant_stream(get_u32(from + 5), get_u32(from + PREFIX_BYTES));
        from += WINDOW_BYTES;
        continue;
      } else {
        most = PREFIX_BYTES;
        payload_left = PREFIX_BYTES + length - COUNTED_BYTES_MIN;
      }
    }
    memmove(to, from, most);
    to += most;
    from += most;
    payload_left -= is_following ? (uint32_t)most : 0;
  }
  *end = from;
  return (size_t)(to - at);
}

struct span follow(unsigned char *bytes, size_t length) {
  unsigned char *start = bytes - held_length, *end = bytes + length;
  struct span agents = {.at = start, .length = (size_t)(end - start)};
  memcpy(start, held, held_length);
  held_length = 0;
  if (is_following) {
    unsigned char *whole = end;
    agents.length = sift(start, &whole);
    held_length = (size_t)(end - whole);
    memcpy(held, whole, held_length);
  }
  handed += agents.length;
  return agents;
}
