// The same messages without blocking the event loop. What cannot be done at once waits on a thread of its own: on
// Node's pool a few waits would hold up every file and cipher of the process.
#include "message.h"

#include <cerrno>
#include <cstring>
#include <new>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace capsem {

namespace {

constexpr size_t stackBytes = 256 * 1024;

// One waiting call. Its thread writes it and then never touches it again; `finish` frees it on the loop's thread.
struct Transfer {
  bool sends;
  int socket;
  Patience patience;
  size_t bytesMax;
  std::unique_ptr<uint8_t[]> payload;
  int passed[passedMax];
  Sending sending;
  Received received;
  Fault fault;
  napi_deferred deferred;
  napi_threadsafe_function wake;
  pthread_t thread;
};

void attempt(Transfer *transfer, Patience patience) {
  transfer->fault =
      transfer->sends ? sendMessage(transfer->socket, &transfer->sending, patience)
                      : receiveMessage(transfer->socket, transfer->bytesMax, &transfer->received, patience);
}

void settle(napi_env env, Transfer *transfer) {
  napi_value value = nullptr;
  if (!transfer->fault.failed() && !transfer->sends) value = receivedValue(env, transfer->received);
  else if (!transfer->fault.failed()) napi_get_undefined(env, &value);
  if (value != nullptr) {
    napi_resolve_deferred(env, transfer->deferred, value);
    return;
  }
  // receivedValue threw and closed what came; its error must not stay pending beside the rejection.
  bool isPending = false;
  napi_value pending = nullptr;
  napi_is_exception_pending(env, &isPending);
  if (isPending) napi_get_and_clear_last_exception(env, &pending);
  napi_reject_deferred(env, transfer->deferred, isPending ? pending : faultError(env, transfer->fault));
}

void *waitOnThread(void *data) {
  auto *transfer = static_cast<Transfer *>(data);
  const napi_threadsafe_function wake = transfer->wake;
  attempt(transfer, transfer->patience);
  // From here on the transfer is the loop's.
  napi_call_threadsafe_function(wake, transfer, napi_tsfn_nonblocking);
  return nullptr;
}

// Node goes down while the call waits: its thread must be over before the function that it calls is gone.
void stopWaiting(void *data) {
  auto *transfer = static_cast<Transfer *>(data);
  const uint64_t one = 1;
  // A failed write means that the event is set already.
  (void)!write(transfer->patience.cancel, &one, sizeof one);
  pthread_join(transfer->thread, nullptr);
}

// Without an environment nobody can be told any more; what came is closed.
void finish(napi_env env, napi_value, void *, void *data) {
  const std::unique_ptr<Transfer> transfer(static_cast<Transfer *>(data));
  if (env == nullptr) {
    for (size_t i = 0; i < transfer->received.count; i++) close(transfer->received.taken[i]);
    return;
  }
  napi_remove_env_cleanup_hook(env, stopWaiting, transfer.get());
  pthread_join(transfer->thread, nullptr);
  settle(env, transfer.get());
  napi_release_threadsafe_function(transfer->wake, napi_tsfn_release);
}

int startThread(Transfer *transfer) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, stackBytes);
  const int error = pthread_create(&transfer->thread, &attributes, waitOnThread, transfer);
  pthread_attr_destroy(&attributes);
  return error;
}

napi_value start(napi_env env, std::unique_ptr<Transfer> transfer) {
  napi_value promise = nullptr;
  napi_value name = nullptr;
  if (napi_create_promise(env, &transfer->deferred, &promise) != napi_ok) return throwFault(env, {"promise", ENOMEM});
  attempt(transfer.get(), {0, noDescriptor});
  if (transfer->fault.error != EAGAIN) {
    settle(env, transfer.get());
    return promise;
  }
  napi_create_string_utf8(env, "capsem.transfer", NAPI_AUTO_LENGTH, &name);
  if (napi_create_threadsafe_function(env, nullptr, nullptr, name, 0, 1, nullptr, nullptr, nullptr, finish,
                                      &transfer->wake) != napi_ok) {
    transfer->fault = {"thread", ENOMEM};
    settle(env, transfer.get());
    return promise;
  }
  const int error = startThread(transfer.get());
  if (error != 0) {
    napi_release_threadsafe_function(transfer->wake, napi_tsfn_release);
    transfer->fault = {"thread", error};
    settle(env, transfer.get());
    return promise;
  }
  // Hooks run last in, first out: this one before the function's own.
  napi_add_env_cleanup_hook(env, stopWaiting, transfer.get());
  transfer.release(); // `finish` owns it.
  return promise;
}

} // namespace

napi_value eventDescriptor(napi_env env, napi_callback_info) {
  const int descriptor = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (descriptor < 0) return throwFault(env, {"eventfd", errno});
  return numberValue(env, descriptor);
}

// (socket, payload, descriptors, timeoutMs, cancel). The payload is copied; the descriptors must stay open.
napi_value sendDescriptorsLater(napi_env env, napi_callback_info info) {
  Arguments arguments(env, info);
  std::unique_ptr<Transfer> transfer(new (std::nothrow) Transfer());
  if (transfer == nullptr) return throwFault(env, {"malloc", ENOMEM});
  transfer->sends = true;
  transfer->socket = arguments.int32(0);
  size_t lengthBytes = 0;
  const uint8_t *payload = arguments.bytes(1, &lengthBytes);
  const size_t count = arguments.descriptors(2, transfer->passed, passedMax);
  transfer->patience = {nowMs() + arguments.int32(3), arguments.int32(4)};
  if (!arguments.valid()) return nullptr;
  transfer->payload.reset(new (std::nothrow) uint8_t[lengthBytes]);
  if (transfer->payload == nullptr) return throwFault(env, {"malloc", ENOMEM});
  memcpy(transfer->payload.get(), payload, lengthBytes);
  transfer->sending = {transfer->payload.get(), lengthBytes, transfer->passed, count, 0};
  return start(env, std::move(transfer));
}

// (socket, bytesMax, timeoutMs, cancel)
napi_value receiveDescriptorsLater(napi_env env, napi_callback_info info) {
  Arguments arguments(env, info);
  std::unique_ptr<Transfer> transfer(new (std::nothrow) Transfer());
  if (transfer == nullptr) return throwFault(env, {"malloc", ENOMEM});
  transfer->socket = arguments.int32(0);
  transfer->bytesMax = static_cast<size_t>(arguments.int64(1));
  transfer->patience = {nowMs() + arguments.int32(2), arguments.int32(3)};
  if (!arguments.valid()) return nullptr;
  return start(env, std::move(transfer));
}

} // namespace capsem
