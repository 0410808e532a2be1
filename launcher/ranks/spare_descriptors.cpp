#include "launcher/ranks/spare_descriptors.hpp"

#include <fcntl.h>

namespace mgpu::launcher {

void SpareDescriptors::keep() {
  for (auto& kept : kept_)
    if (!kept) kept.reset(::open("/dev/null", O_RDONLY | O_CLOEXEC));
}

void SpareDescriptors::release() {
  for (auto& kept : kept_) kept.reset();
}

}  // namespace mgpu::launcher
