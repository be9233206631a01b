#include "binding.h"

#include <cerrno>
#include <sys/prctl.h>

namespace capsem {

// The signal comes when the *thread* that made this process ends, and is cleared by a change of credentials.
napi_value setParentDeathSignal(napi_env env, napi_callback_info info) {
  Arguments arguments(env, info);
  const int32_t signal = arguments.int32(0);
  if (!arguments.valid()) return nullptr;
  if (prctl(PR_SET_PDEATHSIG, static_cast<unsigned long>(signal), 0, 0, 0) < 0)
    return throwFault(env, {"prctl", errno});
  return nullptr;
}

} // namespace capsem
