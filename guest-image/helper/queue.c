#include "mcp.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ROOM_MIN 4096u
#define ROOM_KEPT_MAX 262144u /* an empty queue gives back what one large message took */

size_t queue_length(const struct queue *queue) { return queue->to - queue->from; }

unsigned char *queue_reserve(struct queue *queue, size_t length) {
  size_t waiting = queue_length(queue);
  if (queue->to + length > queue->room) {
    if (queue->from > 0)
      memmove(queue->bytes, queue->bytes + queue->from, waiting);
    queue->from = 0;
    queue->to = waiting;
    size_t room = queue->room < ROOM_MIN ? ROOM_MIN : queue->room;
    while (room < waiting + length)
      room *= 2;
    if (room > queue->room) {
      unsigned char *bytes = realloc(queue->bytes, room);
      if (bytes == NULL)
        _exit(1);
      queue->bytes = bytes;
      queue->room = room;
    }
  }
  return queue->bytes + queue->to;
}

void queue_put(struct queue *queue, const void *bytes, size_t length) {
  memcpy(queue_reserve(queue, length), bytes, length);
  queue->to += length;
}

void queue_drop(struct queue *queue, size_t length) {
  queue->from += length;
  if (queue->from == queue->to)
    queue_clear(queue);
}

void queue_clear(struct queue *queue) {
  queue->from = queue->to = 0;
  if (queue->room > ROOM_KEPT_MAX) {
    free(queue->bytes);
    queue->bytes = NULL;
    queue->room = 0;
  }
}
