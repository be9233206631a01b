#include "binding.h"

#include <cerrno>
#include <cstring>
#include <ctime>
#include <memory>
#include <new>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace capsem {

namespace {

constexpr size_t passedMax = 16;

int64_t nowMs() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<int64_t>(now.tv_sec) * 1000 + now.tv_nsec / 1000000;
}

// Waits until the socket is ready, not longer than the deadline. Returns 0 or an errno; a past deadline is
// EAGAIN, which is what the caller would have got without waiting.
int awaitReady(int descriptor, short events, int64_t deadlineMs) {
  for (;;) {
    const int64_t leftMs = deadlineMs - nowMs();
    if (leftMs <= 0) return EAGAIN;
    pollfd entry = {descriptor, events, 0};
    const int ready = poll(&entry, 1, static_cast<int>(leftMs));
    if (ready > 0) return 0;
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

void closeAll(const int *descriptors, size_t count) {
  for (size_t i = 0; i < count; i++) close(descriptors[i]);
}

} // namespace

napi_value socketPair(napi_env env, napi_callback_info info) {
  Arguments arguments(env, info);
  const int32_t type = arguments.int32(0);
  if (!arguments.valid()) return nullptr;
  int pair[2] = {-1, -1};
  if (socketpair(AF_UNIX, (type == 1 ? SOCK_SEQPACKET : SOCK_STREAM) | SOCK_CLOEXEC, 0, pair) < 0)
    return throwFault(env, {"socketpair", errno});
  return descriptorList(env, pair, 2);
}

napi_value sendDescriptors(napi_env env, napi_callback_info info) {
  Arguments arguments(env, info);
  const int32_t socket = arguments.int32(0);
  size_t lengthBytes = 0;
  const uint8_t *payload = arguments.bytes(1, &lengthBytes);
  int passed[passedMax] = {};
  const size_t count = arguments.descriptors(2, passed, passedMax);
  const int64_t deadlineMs = nowMs() + arguments.int32(3);
  if (!arguments.valid()) return nullptr;

  Control control = {};
  size_t sent = 0;
  while (sent < lengthBytes) {
    iovec part = {const_cast<uint8_t *>(payload) + sent, lengthBytes - sent};
    msghdr message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    // The descriptors ride on the first byte; what a full socket left over follows without them.
    if (sent == 0 && count > 0) {
      message.msg_control = control.bytes;
      message.msg_controllen = CMSG_SPACE(sizeof(int) * count);
      cmsghdr *header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(sizeof(int) * count);
      memcpy(CMSG_DATA(header), passed, sizeof(int) * count);
    }
    const ssize_t put = sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (put >= 0) {
      sent += static_cast<size_t>(put);
    } else if (errno == EAGAIN) {
      const int error = awaitReady(socket, POLLOUT, deadlineMs);
      if (error != 0) return throwFault(env, {"sendmsg", error});
    } else if (errno != EINTR) {
      return throwFault(env, {"sendmsg", errno});
    }
  }
  return nullptr;
}

napi_value receiveDescriptors(napi_env env, napi_callback_info info) {
  Arguments arguments(env, info);
  const int32_t socket = arguments.int32(0);
  const int64_t bytesMax = arguments.int64(1);
  const int64_t deadlineMs = nowMs() + arguments.int32(2);
  if (!arguments.valid()) return nullptr;
  const std::unique_ptr<uint8_t[]> buffer(new (std::nothrow) uint8_t[static_cast<size_t>(bytesMax)]);
  if (buffer == nullptr) return throwFault(env, {"malloc", ENOMEM});

  Control control = {};
  iovec part = {buffer.get(), static_cast<size_t>(bytesMax)};
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
    const int error = errno == EAGAIN ? awaitReady(socket, POLLIN, deadlineMs) : errno;
    if (error != 0) return throwFault(env, {"recvmsg", error});
  }

  int taken[passedMax] = {};
  const size_t count = takeDescriptors(&message, taken);
  if ((message.msg_flags & (MSG_CTRUNC | MSG_TRUNC)) != 0) {
    closeAll(taken, count);
    const bool control_cut = (message.msg_flags & MSG_CTRUNC) != 0;
    return throwCode(env, control_cut ? "descriptors_truncated" : "payload_truncated", "recvmsg");
  }
  napi_value result = nullptr;
  napi_value bytes = nullptr;
  const bool made = napi_create_object(env, &result) == napi_ok &&
                    napi_create_buffer_copy(env, static_cast<size_t>(got), buffer.get(), nullptr, &bytes) == napi_ok &&
                    napi_set_named_property(env, result, "payload", bytes) == napi_ok &&
                    napi_set_named_property(env, result, "fds", descriptorList(env, taken, count)) == napi_ok;
  if (made) return result;
  closeAll(taken, count);
  return throwFault(env, {"recvmsg", ENOMEM});
}

napi_value peerCredentials(napi_env env, napi_callback_info info) {
  Arguments arguments(env, info);
  const int32_t socket = arguments.int32(0);
  if (!arguments.valid()) return nullptr;
  ucred peer = {};
  socklen_t size = sizeof peer;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0) return throwFault(env, {"getsockopt", errno});
  // The kernel answers for a socket without a peer too, with nobody.
  if (peer.pid == 0 && peer.uid == static_cast<uid_t>(-1)) return throwFault(env, {"getsockopt", ENOTCONN});
  napi_value result = nullptr;
  napi_create_object(env, &result);
  napi_set_named_property(env, result, "pid", numberValue(env, peer.pid));
  napi_set_named_property(env, result, "uid", numberValue(env, peer.uid));
  napi_set_named_property(env, result, "gid", numberValue(env, peer.gid));
  return result;
}

napi_value closeDescriptor(napi_env env, napi_callback_info info) {
  Arguments arguments(env, info);
  const int32_t descriptor = arguments.int32(0);
  if (!arguments.valid()) return nullptr;
  // Linux releases the number even when close is interrupted: a second try could close another file.
  if (close(descriptor) < 0 && errno != EINTR) return throwFault(env, {"close", errno});
  return nullptr;
}

} // namespace capsem
