#include "message.h"

#include <cerrno>
#include <cstring>
#include <ctime>
#include <new>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace capsem {

int64_t nowMs() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<int64_t>(now.tv_sec) * 1000 + now.tv_nsec / 1000000;
}

namespace {

// Waits until the socket is ready. Returns 0 or an errno; a past deadline is EAGAIN, which is what the caller
// would have got without waiting.
int awaitReady(int descriptor, short events, Patience patience) {
  for (;;) {
    const int64_t leftMs = patience.deadlineMs - nowMs();
    if (leftMs <= 0) return EAGAIN;
    // A negative descriptor is left out by the kernel.
    pollfd entries[2] = {{descriptor, events, 0}, {patience.cancel, POLLIN, 0}};
    const int ready = poll(entries, 2, static_cast<int>(leftMs));
    if (ready > 0) return entries[1].revents != 0 ? ECANCELED : 0;
    if (ready < 0 && errno != EINTR) return errno;
  }
}

// One control buffer, aligned for its header, with room for exactly `passedMax` descriptors.
union Control {
  cmsghdr header;
  char bytes[CMSG_SPACE(sizeof(int) * passedMax)];
};

// Takes every descriptor that the kernel already installed in this process, so that none can leak.
size_t takeDescriptors(msghdr *message, int *into) {
  size_t count = 0;
  for (cmsghdr *part = CMSG_FIRSTHDR(message); part != nullptr; part = CMSG_NXTHDR(message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const size_t held = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < held && count < passedMax; i++, count++)
      memcpy(&into[count], CMSG_DATA(part) + i * sizeof(int), sizeof(int));
  }
  return count;
}

} // namespace

Fault sendMessage(int socket, Sending *sending, Patience patience) {
  Control control = {};
  while (sending->sentBytes < sending->lengthBytes) {
    iovec part = {const_cast<uint8_t *>(sending->payload) + sending->sentBytes,
                  sending->lengthBytes - sending->sentBytes};
    msghdr message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    // The descriptors ride on the first byte; what a full socket left over follows without them.
    if (sending->sentBytes == 0 && sending->count > 0) {
      const size_t passedBytes = sizeof(int) * sending->count;
      message.msg_control = control.bytes;
      message.msg_controllen = CMSG_SPACE(passedBytes);
      cmsghdr *header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(passedBytes);
      memcpy(CMSG_DATA(header), sending->passed, passedBytes);
    }
    const ssize_t put = sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (put >= 0) {
      sending->sentBytes += static_cast<size_t>(put);
    } else if (errno == EAGAIN) {
      const int error = awaitReady(socket, POLLOUT, patience);
      if (error != 0) return {"sendmsg", error};
    } else if (errno != EINTR) {
      return {"sendmsg", errno};
    }
  }
  return {};
}

Fault receiveMessage(int socket, size_t bytesMax, Received *received, Patience patience) {
  received->payload.reset(new (std::nothrow) uint8_t[bytesMax]);
  if (received->payload == nullptr) return {"malloc", ENOMEM};
  Control control = {};
  iovec part = {received->payload.get(), bytesMax};
  msghdr message = {};
  ssize_t got = -1;
  while (got < 0) {
    message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.bytes;
    message.msg_controllen = sizeof control.bytes;
    got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (got >= 0 || errno == EINTR) continue;
    const int error = errno == EAGAIN ? awaitReady(socket, POLLIN, patience) : errno;
    if (error != 0) return {"recvmsg", error};
  }
  received->lengthBytes = static_cast<size_t>(got);
  received->count = takeDescriptors(&message, received->taken);
  if ((message.msg_flags & (MSG_CTRUNC | MSG_TRUNC)) == 0) return {};
  for (size_t i = 0; i < received->count; i++) close(received->taken[i]);
  received->count = 0;
  const bool isControlCut = (message.msg_flags & MSG_CTRUNC) != 0;
  return {"recvmsg", 0, isControlCut ? "descriptors_truncated" : "payload_truncated"};
}

} // namespace capsem
