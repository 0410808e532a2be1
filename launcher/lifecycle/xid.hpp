#pragma once

#include <string_view>

namespace mgpu::launcher {

// Whether a line of the kernel log reports an error of the GPU itself, its memory, its NVLink or
// its firmware, as in "NVRM: Xid (PCI:0000:17:00): 79, pid=4711, GPU has fallen off the bus". Not
// for the Xids that a program causes, such as 13 and 31 for an invalid address.
bool reports_gpu_fault(std::string_view line);

}  // namespace mgpu::launcher
