#include "message.h"

#include <cerrno>
#include <memory>
#include <new>
#include <sys/socket.h>
#include <unistd.h>

namespace capsem {

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

  Sending sending = {payload, lengthBytes, passed, count, 0};
  const Fault fault = sendMessage(socket, &sending, {deadlineMs, noDescriptor});
  return fault.failed() ? throwFault(env, fault) : nullptr;
}

napi_value receiveDescriptors(napi_env env, napi_callback_info info) {
  Arguments arguments(env, info);
  const int32_t socket = arguments.int32(0);
  const int64_t bytesMax = arguments.int64(1);
  const int64_t deadlineMs = nowMs() + arguments.int32(2);
  if (!arguments.valid()) return nullptr;
  Received received;
  const Fault fault = receiveMessage(socket, static_cast<size_t>(bytesMax), &received, {deadlineMs, noDescriptor});
  return fault.failed() ? throwFault(env, fault) : receivedValue(env, received);
}

napi_value receivedValue(napi_env env, const Received &received) {
  napi_value result = nullptr;
  napi_value bytes = nullptr;
  const bool made =
      napi_create_object(env, &result) == napi_ok &&
      napi_create_buffer_copy(env, received.lengthBytes, received.payload.get(), nullptr, &bytes) == napi_ok &&
      napi_set_named_property(env, result, "payload", bytes) == napi_ok &&
      napi_set_named_property(env, result, "fds", descriptorList(env, received.taken, received.count)) == napi_ok;
  if (made) return result;
  for (size_t i = 0; i < received.count; i++) close(received.taken[i]);
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
