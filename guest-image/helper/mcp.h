/* The thin client's parts: lines of JSON-RPC on one side, frames to the traffic role on the other. */
#ifndef CAPSEM_HELPER_MCP_H
#define CAPSEM_HELPER_MCP_H

#include "relay.h"

#define MESSAGE_BYTES_MAX 16777216u
#define ID_BYTES_MAX 1024u /* of a JSON-RPC id as it is spelled */

/* A part of a message as it was written. */
struct text {
  const char *at;
  size_t length;
};

/* scan.c: what a message is, without a value of it being made */
enum message_kind {
  MESSAGE_BAD,   /* no JSON */
  MESSAGE_BATCH, /* an array */
  MESSAGE_OTHER, /* JSON, and no message */
  MESSAGE_REQUEST,
  MESSAGE_NOTIFICATION,
  MESSAGE_ANSWER,
};
struct message {
  enum message_kind kind;
  struct text id;        /* a string or a number, as spelled */
  struct text method;    /* with its quotes */
  struct text cancelled; /* params.requestId */
};
void scan_message(const char *text, size_t length, struct message *message);
bool text_is(struct text text, const char *wanted);

/* queue.c: bytes between `from` and `to` wait */
struct queue {
  unsigned char *bytes;
  size_t from, to, room;
};
size_t queue_length(const struct queue *queue);
unsigned char *queue_reserve(struct queue *queue, size_t length); /* room at the end; ends the process without memory */
void queue_put(struct queue *queue, const void *bytes, size_t length);
void queue_drop(struct queue *queue, size_t length); /* from its beginning */
void queue_clear(struct queue *queue);

/* calls.c: what was asked and has no answer yet, by the JSON-RPC id and the stream id of its frame */
struct call {
  uint32_t stream;
  size_t id_length;
  char *id;
};
struct calls {
  struct call *list;
  size_t count, most;
};
void calls_add(struct calls *calls, uint32_t stream, struct text id); /* forgets the oldest of too many */
bool calls_remove_stream(struct calls *calls, uint32_t stream);
uint32_t calls_remove_id(struct calls *calls, struct text id); /* its stream; 0: there is none */
void calls_clear(struct calls *calls);

/* framing.c */
enum frame_flag { FLAG_NOTIFICATION = 1, FLAG_MORE = 2 };
void frame_message(struct queue *out, uint32_t stream, unsigned flags, const char *name, struct text message);
/* Takes the next whole message off `in`. 1: there is one, valid until the next call; 0: not yet; -1: the session is
 * over, or what came is no frame. */
struct framed {
  uint32_t stream;
  struct text message;
};
int framed_next(struct queue *in, struct framed *framed);
void framed_reset(void);

#endif
