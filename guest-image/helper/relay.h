/* The relay's own parts: the lane's port in both directions, and the files that it sends in the agent's place. */
#ifndef CAPSEM_HELPER_RELAY_H
#define CAPSEM_HELPER_RELAY_H

#include "helper.h"

/* One write to a virtio port takes so much, whole or not at all. */
#define PORT_WRITE_BYTES 32768
#define BODIES_MAX 64 /* as the agent's operations */
#define CREDIT_MAX 262144u
#define REPORT_BYTES 20

/* relay.c: a lane's port, not blocking. A device; in tests a socket stands in its place. */
int open_port(const char *path);

/* body.c: files whose bytes leave as data frames, each inside its credit, one frame of each in turn. */
struct body_order {
  uint32_t body, stream, fd, credit;
  uint64_t offset, length;
};
void body_start(const struct body_order *order);
void body_grant(uint32_t body, uint32_t bytes);
void body_stop(uint32_t body);
bool body_sends(uint32_t stream);
void body_grant_stream(uint32_t stream, uint32_t bytes);
bool bodies_are_none(void);
/* The next data frame into `frame` of PORT_WRITE_BYTES; 0 when no body may send. */
size_t body_frame(unsigned char *frame);
/* Reports of bodies that are over, not yet taken by the agent. */
const unsigned char *body_reports(size_t *length);
void body_reports_taken(size_t length);

/* follow.c: while a body is sent, its window frames are taken out of what the agent is given, which would be woken
 * for each. A frame's beginning is held until it is known; a byte that is the agent's is never lost or changed. */
#define FOLLOW_HEADROOM 16 /* before the bytes that `follow` is given */
struct span {
  unsigned char *at;
  size_t length;
};
/* The next byte begins a frame if the agent was given so many before it; else nothing is followed. */
void follow_from(uint64_t boundary);
struct span follow(unsigned char *bytes, size_t length);
/* Follows no longer: puts what is held, at most FOLLOW_HEADROOM bytes, at `at`. */
size_t follow_release(unsigned char *at);

static inline uint32_t get_u32(const unsigned char *at) {
  return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static inline uint64_t get_u64(const unsigned char *at) {
  return (uint64_t)get_u32(at) << 32 | get_u32(at + 4);
}

static inline void put_u32(unsigned char *at, uint32_t value) {
  for (int i = 0; i < 4; i++)
    at[i] = (unsigned char)(value >> (24 - 8 * i));
}

#endif
