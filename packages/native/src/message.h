// One message with descriptors over a Unix socket: what the blocking and the waiting calls share. Nothing here
// knows JavaScript, so that it may run on any thread.
#pragma once

#include "binding.h"

#include <memory>

namespace capsem {

constexpr size_t passedMax = 16;
constexpr int noDescriptor = -1;

int64_t nowMs();

// How long a call may wait: until the deadline, or until `cancel` (an eventfd, or noDescriptor) is readable.
struct Patience {
  int64_t deadlineMs;
  int cancel;
};

// The bytes and descriptors stay the caller's. `sentBytes` is what is gone already, so that a call that had to give up
// can be made again.
struct Sending {
  const uint8_t *payload;
  size_t lengthBytes;
  const int *passed;
  size_t count;
  size_t sentBytes;
};

// The descriptors are the taker's to close.
struct Received {
  std::unique_ptr<uint8_t[]> payload;
  size_t lengthBytes = 0;
  int taken[passedMax] = {};
  size_t count = 0;
};

// Both fail with EAGAIN at the deadline and with ECANCELED when cancelled. Never leaves a descriptor behind.
Fault sendMessage(int socket, Sending *sending, Patience patience);
Fault receiveMessage(int socket, size_t bytesMax, Received *received, Patience patience);

// {payload, fds}; closes the descriptors when the object cannot be made, and throws.
napi_value receivedValue(napi_env env, const Received &received);

} // namespace capsem
