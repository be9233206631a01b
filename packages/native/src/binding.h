// What every file of the addon shares: reading checked arguments and throwing an errno as a JavaScript error.
// The JavaScript in native.ts has checked types and ranges already; what is checked again here is only what
// would otherwise touch memory that is not ours.
#pragma once

#include <cstddef>
#include <cstdint>
#include <node_api.h>

namespace capsem {

// A failed call into the kernel; without a `syscall` there was no failure. `code` is a word of ours for what is
// no errno, such as a message that was cut.
struct Fault {
  const char *syscall = nullptr;
  int error = 0;
  const char *code = nullptr;

  bool failed() const { return syscall != nullptr; }
};

// An Error whose `code` is the errno's name, or the fault's own word.
napi_value faultError(napi_env env, Fault fault);

// Throws that error. Returns nullptr so that a callback can end with `return throwFault(env, fault)`.
napi_value throwFault(napi_env env, Fault fault);

// The arguments of one call. A read that does not fit throws a TypeError once and turns `valid` false.
class Arguments {
public:
  static constexpr size_t countMax = 5;

  Arguments(napi_env env, napi_callback_info info);

  int32_t int32(size_t index);
  int64_t int64(size_t index);
  // Copies a string with its final zero; a longer one is refused, never cut.
  void text(size_t index, char *into, size_t sizeBytes);
  // The bytes stay owned by JavaScript and are valid until the callback returns.
  const uint8_t *bytes(size_t index, size_t *lengthBytes);
  // Reads an array of descriptors; more than `countMaximum` are refused. Returns how many.
  size_t descriptors(size_t index, int *into, size_t countMaximum);

  bool valid() const { return valid_; }

private:
  void refuse(const char *message);

  napi_env env_;
  napi_value values_[countMax] = {};
  size_t count_ = countMax;
  bool valid_ = true;
};

napi_value numberValue(napi_env env, double value);
napi_value descriptorList(napi_env env, const int *descriptors, size_t count);

// memory.cc
napi_value memfdCreate(napi_env env, napi_callback_info info);
napi_value addSeals(napi_env env, napi_callback_info info);
napi_value getSeals(napi_env env, napi_callback_info info);
napi_value copyFileInto(napi_env env, napi_callback_info info);

// descriptors.cc
napi_value socketPair(napi_env env, napi_callback_info info);
napi_value sendDescriptors(napi_env env, napi_callback_info info);
napi_value receiveDescriptors(napi_env env, napi_callback_info info);
napi_value peerCredentials(napi_env env, napi_callback_info info);
napi_value closeDescriptor(napi_env env, napi_callback_info info);

// transfer.cc
napi_value eventDescriptor(napi_env env, napi_callback_info info);
napi_value sendDescriptorsLater(napi_env env, napi_callback_info info);
napi_value receiveDescriptorsLater(napi_env env, napi_callback_info info);

// process.cc
napi_value setParentDeathSignal(napi_env env, napi_callback_info info);

// confinement.cc
napi_value landlockAbi(napi_env env, napi_callback_info info);
napi_value setNoNewPrivileges(napi_env env, napi_callback_info info);
napi_value limitFileSize(napi_env env, napi_callback_info info);
napi_value installFilter(napi_env env, napi_callback_info info);
napi_value attempt(napi_env env, napi_callback_info info);

} // namespace capsem
