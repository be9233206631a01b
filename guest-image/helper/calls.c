#include "mcp.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void remove_at(struct calls *calls, size_t at) {
  free(calls->list[at].id);
  calls->count--;
  memmove(calls->list + at, calls->list + at + 1, (calls->count - at) * sizeof calls->list[0]);
}

void calls_add(struct calls *calls, uint32_t stream, struct text id) {
  if (calls->list == NULL)
    calls->list = malloc(calls->most * sizeof calls->list[0]);
  char *copy = malloc(id.length);
  if (calls->list == NULL || copy == NULL)
    _exit(1);
  if (calls->count == calls->most)
    remove_at(calls, 0);
  memcpy(copy, id.at, id.length);
  calls->list[calls->count++] = (struct call){.stream = stream, .id_length = id.length, .id = copy};
}

bool calls_remove_stream(struct calls *calls, uint32_t stream) {
  for (size_t i = 0; i < calls->count; i++)
    if (calls->list[i].stream == stream) {
      remove_at(calls, i);
      return true;
    }
  return false;
}

uint32_t calls_remove_id(struct calls *calls, struct text id) {
  for (size_t i = 0; i < calls->count; i++) {
    const struct call *call = &calls->list[i];
    if (call->id_length == id.length && memcmp(call->id, id.at, id.length) == 0) {
      uint32_t stream = call->stream;
      remove_at(calls, i);
      return stream;
    }
  }
  return 0;
}

void calls_clear(struct calls *calls) {
  while (calls->count > 0)
    remove_at(calls, calls->count - 1);
}
