#include "runtime/profiling/range.hpp"

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define MGPU_NVTX 1
#endif

namespace mgpu::profiling {

#ifdef MGPU_NVTX
Range::Range(const char* name) noexcept {
  nvtxRangePushA(name);
}
Range::~Range() {
  nvtxRangePop();
}
#else
Range::Range(const char*) noexcept {}
Range::~Range() = default;
#endif

}  // namespace mgpu::profiling
