// Instead of packed_plan.cpp in a build without cudnn-frontend.
#include <stdexcept>

#include "runtime/kernels/packed_plan.hpp"

namespace mgpu::ops {

bool has_packed_plans() {
  return false;
}

std::shared_ptr<const PackedPlan> build_packed_plan(const AttentionShape&, at::ScalarType) {
  throw std::logic_error("this build has no cudnn-frontend");
}

}  // namespace mgpu::ops
