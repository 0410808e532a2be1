#pragma once

namespace mgpu::launcher {

// Whether process ids that the kernel's log and the NVIDIA driver show mean the same processes
// here. In a container they do not: it has its own pid namespace, in which a number that they show
// may belong to another process.
bool sees_kernel_pids();

}  // namespace mgpu::launcher
