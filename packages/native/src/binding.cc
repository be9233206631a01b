#include "binding.h"

#include <cstdio>
#include <cstring>

namespace capsem {

napi_value faultError(napi_env env, Fault fault) {
  const char *name = fault.code != nullptr ? fault.code : strerrorname_np(fault.error);
  const char *text = fault.code != nullptr ? fault.code : strerrordesc_np(fault.error);
  char message[128];
  snprintf(message, sizeof message, "%s: %s", fault.syscall, text == nullptr ? "unknown" : text);
  napi_value code = nullptr;
  napi_value words = nullptr;
  napi_value error = nullptr;
  napi_create_string_utf8(env, name == nullptr ? "EUNKNOWN" : name, NAPI_AUTO_LENGTH, &code);
  napi_create_string_utf8(env, message, NAPI_AUTO_LENGTH, &words);
  napi_create_error(env, code, words, &error);
  return error;
}

napi_value throwFault(napi_env env, Fault fault) {
  napi_throw(env, faultError(env, fault));
  return nullptr;
}

Arguments::Arguments(napi_env env, napi_callback_info info) : env_(env) {
  if (napi_get_cb_info(env, info, &count_, values_, nullptr, nullptr) != napi_ok) refuse("arguments");
}

void Arguments::refuse(const char *message) {
  if (valid_) napi_throw_type_error(env_, "ERR_INVALID_ARG_TYPE", message);
  valid_ = false;
}

int32_t Arguments::int32(size_t index) {
  int32_t value = -1;
  if (valid_ && napi_get_value_int32(env_, values_[index], &value) != napi_ok) refuse("a number is needed");
  return value;
}

int64_t Arguments::int64(size_t index) {
  int64_t value = -1;
  if (valid_ && napi_get_value_int64(env_, values_[index], &value) != napi_ok) refuse("a number is needed");
  return value;
}

void Arguments::text(size_t index, char *into, size_t sizeBytes) {
  into[0] = '\0';
  size_t lengthBytes = 0;
  if (!valid_) return;
  // First the length alone: a call with a buffer would cut a long text silently.
  if (napi_get_value_string_utf8(env_, values_[index], nullptr, 0, &lengthBytes) != napi_ok)
    return refuse("a string is needed");
  if (lengthBytes >= sizeBytes) return refuse("the string is too long");
  napi_get_value_string_utf8(env_, values_[index], into, sizeBytes, &lengthBytes);
}

const uint8_t *Arguments::bytes(size_t index, size_t *lengthBytes) {
  *lengthBytes = 0;
  if (!valid_) return nullptr;
  napi_typedarray_type type = napi_int8_array;
  void *data = nullptr;
  napi_status status =
      napi_get_typedarray_info(env_, values_[index], &type, lengthBytes, &data, nullptr, nullptr);
  if (status != napi_ok || type != napi_uint8_array) refuse("a Uint8Array is needed");
  return static_cast<const uint8_t *>(data);
}

size_t Arguments::descriptors(size_t index, int *into, size_t countMaximum) {
  uint32_t count = 0;
  if (!valid_) return 0;
  if (napi_get_array_length(env_, values_[index], &count) != napi_ok) refuse("an array is needed");
  else if (count > countMaximum) refuse("there are too many descriptors");
  for (uint32_t i = 0; valid_ && i < count; i++) {
    napi_value element = nullptr;
    napi_get_element(env_, values_[index], i, &element);
    if (element == nullptr || napi_get_value_int32(env_, element, &into[i]) != napi_ok)
      refuse("a descriptor is a number");
  }
  return valid_ ? count : 0;
}

napi_value numberValue(napi_env env, double value) {
  napi_value result = nullptr;
  napi_create_double(env, value, &result);
  return result;
}

napi_value descriptorList(napi_env env, const int *descriptors, size_t count) {
  napi_value list = nullptr;
  napi_create_array_with_length(env, count, &list);
  for (size_t i = 0; i < count; i++)
    napi_set_element(env, list, static_cast<uint32_t>(i), numberValue(env, descriptors[i]));
  return list;
}

} // namespace capsem

NAPI_MODULE_INIT() {
  using namespace capsem;
  struct {
    const char *name;
    napi_callback callback;
  } const table[] = {
      {"memfdCreate", memfdCreate},
      {"addSeals", addSeals},
      {"getSeals", getSeals},
      {"copyFileInto", copyFileInto},
      {"socketPair", socketPair},
      {"sendDescriptors", sendDescriptors},
      {"receiveDescriptors", receiveDescriptors},
      {"peerCredentials", peerCredentials},
      {"closeDescriptor", closeDescriptor},
      {"eventDescriptor", eventDescriptor},
      {"sendDescriptorsLater", sendDescriptorsLater},
      {"receiveDescriptorsLater", receiveDescriptorsLater},
      {"setParentDeathSignal", setParentDeathSignal},
      {"landlockAbi", landlockAbi},
      {"setNoNewPrivileges", setNoNewPrivileges},
      {"limitFileSize", limitFileSize},
      {"installFilter", installFilter},
      {"attempt", attempt},
  };
  for (const auto &entry : table) {
    napi_value function = nullptr;
    napi_create_function(env, entry.name, NAPI_AUTO_LENGTH, entry.callback, nullptr, &function);
    napi_set_named_property(env, exports, entry.name, function);
  }
  return exports;
}
