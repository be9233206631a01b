#include "binding.h"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <memory>
#include <new>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace capsem {

namespace {

// By number: many systems' headers are older than their kernel.
constexpr long landlockCreateRuleset = 444;
constexpr long ioUringSetup = 425;
constexpr long pidfdGetfd = 438;

int errorOf(long result) { return result < 0 ? errno : 0; }

int trySocket(int family, int type) {
  const int descriptor = socket(family, type | SOCK_CLOEXEC, 0);
  if (descriptor < 0) return errno;
  close(descriptor);
  return 0;
}

// What a sealed process must not be able to do, each with arguments that the kernel refuses for another reason, so
// that nothing happens where no filter stands in front. Returns the errno, or 0. The order is native.ts's.
int attemptOf(int32_t act) {
  switch (act) {
  case 0: // EFAULT without a filter.
    return errorOf(syscall(SYS_execve, nullptr, nullptr, nullptr));
  case 1: // A new process: signal handlers cannot be shared without memory, EINVAL.
    return errorOf(syscall(SYS_clone, CLONE_SIGHAND, nullptr, nullptr, nullptr, nullptr));
  case 2: // No such process.
    return errorOf(syscall(SYS_ptrace, PTRACE_ATTACH, -1, nullptr, nullptr));
  case 3: // Unknown flags.
    return errorOf(syscall(SYS_process_vm_readv, getpid(), nullptr, 0, nullptr, 0, 1));
  case 4: // Unknown flags.
    return errorOf(syscall(SYS_unshare, 1));
  case 5: // No such descriptor.
    return errorOf(syscall(SYS_setns, -1, 0));
  case 6: // No path.
    return errorOf(syscall(SYS_mount, nullptr, nullptr, nullptr, 0, nullptr));
  case 7: // No entries, no parameters.
    return errorOf(syscall(ioUringSetup, 0, nullptr));
  case 8: // No such descriptor.
    return errorOf(syscall(pidfdGetfd, -1, -1, 0));
  case 9:
    return trySocket(AF_INET, SOCK_STREAM);
  case 10:
    return trySocket(AF_UNIX, SOCK_STREAM);
  case 11:
    return trySocket(AF_NETLINK, SOCK_RAW);
  case 12: // No such descriptor.
    return errorOf(connect(-1, nullptr, 0));
  case 13: // No such descriptor.
    return errorOf(bind(-1, nullptr, 0));
  case 14: // No message. The descriptor is the gateway's pair, which the rest of the filter allows to send on.
    return errorOf(syscall(SYS_sendmsg, 4, nullptr, MSG_FASTOPEN));
  default:
    return EINVAL;
  }
}

} // namespace

napi_value landlockAbi(napi_env env, napi_callback_info) {
  const long version = syscall(landlockCreateRuleset, nullptr, 0, 1);
  return numberValue(env, version < 0 ? 0 : static_cast<double>(version));
}

napi_value setNoNewPrivileges(napi_env env, napi_callback_info) {
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0) return throwFault(env, {"prctl", errno});
  return nullptr;
}

// Both limits, so that this process cannot lift it. Node ignores the signal that would come with the errno.
napi_value limitFileSize(napi_env env, napi_callback_info info) {
  Arguments arguments(env, info);
  const int64_t bytes = arguments.int64(0);
  if (!arguments.valid()) return nullptr;
  if (bytes < 0) return throwFault(env, {"setrlimit", EINVAL});
  const rlimit limit = {static_cast<rlim_t>(bytes), static_cast<rlim_t>(bytes)};
  if (setrlimit(RLIMIT_FSIZE, &limit) < 0) return throwFault(env, {"setrlimit", errno});
  return nullptr;
}

// Adds a filter to every thread of this process, or to none.
napi_value installFilter(napi_env env, napi_callback_info info) {
  Arguments arguments(env, info);
  size_t lengthBytes = 0;
  const uint8_t *bytes = arguments.bytes(0, &lengthBytes);
  if (!arguments.valid()) return nullptr;
  const size_t count = lengthBytes / sizeof(sock_filter);
  if (count == 0 || count > BPF_MAXINSNS || lengthBytes % sizeof(sock_filter) != 0)
    return throwFault(env, {"seccomp", EINVAL});
  // A copy: JavaScript's bytes need not be aligned for the kernel's records.
  const std::unique_ptr<sock_filter[]> records(new (std::nothrow) sock_filter[count]);
  if (records == nullptr) return throwFault(env, {"malloc", ENOMEM});
  memcpy(records.get(), bytes, lengthBytes);
  const sock_fprog program = {static_cast<unsigned short>(count), records.get()};
  const long result = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program);
  if (result < 0) return throwFault(env, {"seccomp", errno});
  // The number of a thread that has filters of its own and could not follow.
  if (result > 0) return throwFault(env, {"seccomp", EBUSY});
  return nullptr;
}

napi_value attempt(napi_env env, napi_callback_info info) {
  Arguments arguments(env, info);
  const int32_t act = arguments.int32(0);
  if (!arguments.valid()) return nullptr;
  const int error = attemptOf(act);
  napi_value name = nullptr;
  const char *text = error == 0 ? "" : strerrorname_np(error);
  napi_create_string_utf8(env, text == nullptr ? "EUNKNOWN" : text, NAPI_AUTO_LENGTH, &name);
  return name;
}

} // namespace capsem
