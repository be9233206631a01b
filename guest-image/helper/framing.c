#include "mcp.h"

#include <string.h>

#define MAGIC 0x4d43
#define VERSION 1
#define HEADER_BYTES 16u /* after the length, which counts it */
#define COUNTED_BYTES_MAX 1052672u
#define CHUNK_BYTES 1048576u /* of a message in one frame */
#define PARTS_MAX 8          /* messages that come in several frames, at once */

/* A message whose frames are still coming. */
struct part {
  uint32_t stream;
  unsigned flags;
  struct queue bytes;
  bool is_used;
};
static struct part parts[PARTS_MAX];
static struct queue given; /* the message last given out */

static void put_u16(unsigned char *at, unsigned value) {
  at[0] = (unsigned char)(value >> 8);
  at[1] = (unsigned char)value;
}

static unsigned get_u16(const unsigned char *at) { return (unsigned)at[0] << 8 | at[1]; }

void frame_message(struct queue *out, uint32_t stream, unsigned flags, const char *name, struct text message) {
  size_t name_length = strlen(name);
  do {
    size_t length = message.length < CHUNK_BYTES ? message.length : CHUNK_BYTES;
    unsigned char *at = queue_reserve(out, 4 + HEADER_BYTES + name_length + length);
    put_u32(at, (uint32_t)(HEADER_BYTES + name_length + length));
    put_u16(at + 4, MAGIC);
    at[6] = VERSION;
    at[7] = HEADER_BYTES;
    put_u32(at + 8, stream);
    put_u16(at + 12, flags | (length < message.length ? FLAG_MORE : 0));
    put_u16(at + 14, (unsigned)name_length);
    put_u32(at + 16, (uint32_t)length);
    memcpy(at + 4 + HEADER_BYTES, name, name_length);
    memcpy(at + 4 + HEADER_BYTES + name_length, message.at, length);
    out->to += 4 + HEADER_BYTES + name_length + length;
    message.at += length;
    message.length -= length;
  } while (message.length > 0);
}

static struct part *part_of(uint32_t stream, unsigned flags) {
  struct part *unused = NULL;
  for (int i = 0; i < PARTS_MAX; i++) {
    if (parts[i].is_used && parts[i].stream == stream)
      return parts[i].flags == flags ? &parts[i] : NULL;
    if (!parts[i].is_used && unused == NULL)
      unused = &parts[i];
  }
  if (unused != NULL)
    *unused = (struct part){.stream = stream, .flags = flags, .bytes = unused->bytes, .is_used = true};
  return unused;
}

static bool has_part(uint32_t stream) {
  for (int i = 0; i < PARTS_MAX; i++)
    if (parts[i].is_used && parts[i].stream == stream)
      return true;
  return false;
}

/* 1: the message is whole; 0: more of it comes; -1: it is no good. */
static int join(uint32_t stream, unsigned flags, const unsigned char *payload, size_t length, struct framed *framed) {
  framed->stream = stream;
  if (!(flags & FLAG_MORE) && !has_part(stream)) {
    framed->message = (struct text){(const char *)payload, length};
    return 1;
  }
  struct part *part = part_of(stream, flags & FLAG_NOTIFICATION);
  if (part == NULL || queue_length(&part->bytes) + length > MESSAGE_BYTES_MAX)
    return -1;
  queue_put(&part->bytes, payload, length);
  if (flags & FLAG_MORE)
    return 0;
  queue_clear(&given);
  struct queue whole = part->bytes;
  part->bytes = given;
  part->is_used = false;
  given = whole;
  framed->message = (struct text){(const char *)given.bytes + given.from, queue_length(&given)};
  return 1;
}

int framed_next(struct queue *in, struct framed *framed) {
  for (;;) {
    const unsigned char *at = in->bytes + in->from;
    size_t there = queue_length(in);
    if (there < 4)
      return 0;
    uint32_t counted = get_u32(at);
    if (counted < HEADER_BYTES || counted > COUNTED_BYTES_MAX)
      return -1; /* 0 is the end of the session */
    if (there < 4 + counted)
      return 0;
    uint32_t stream = get_u32(at + 8), payload = get_u32(at + 16);
    unsigned flags = get_u16(at + 12), name = get_u16(at + 14);
    bool is_good = get_u16(at + 4) == MAGIC && at[6] == VERSION && at[7] == HEADER_BYTES &&
                   flags <= (FLAG_NOTIFICATION | FLAG_MORE) && name <= PROCESS_NAME_BYTES && payload <= COUNTED_BYTES_MAX &&
                   HEADER_BYTES + name + payload == counted && (stream == 0) == ((flags & FLAG_NOTIFICATION) != 0);
    if (!is_good)
      return -1;
    /* What is given out stays where it is: bytes are read into the queue after it was used. */
    in->from += 4 + counted;
    int result = join(stream, flags, at + 4 + HEADER_BYTES + name, payload, framed);
    if (result != 0)
      return result;
  }
}

void framed_reset(void) {
  for (int i = 0; i < PARTS_MAX; i++) {
    queue_clear(&parts[i].bytes);
    parts[i].is_used = false;
  }
}
