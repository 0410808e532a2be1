#include "runtime/profiling/range.hpp"

#include "runtime/profiling/range_log.hpp"

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define MGPU_NVTX 1
#endif

namespace mgpu::profiling {

Range::Range(const char* name) noexcept
    : name_(name), begin_ns_(range_log_is_on() ? range_log_clock() : 0) {
#ifdef MGPU_NVTX
  nvtxRangePushA(name);
#endif
}

Range::~Range() {
#ifdef MGPU_NVTX
  nvtxRangePop();
#endif
  if (begin_ns_ != 0) log_range(name_, begin_ns_);
}

}  // namespace mgpu::profiling
