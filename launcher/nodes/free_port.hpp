#pragma once

namespace mgpu::launcher {

// A port that is free now. It is below the kernel's range of ephemeral ports, so that no outgoing
// connection takes it before it is bound. Throws if there is none.
int free_port();

}  // namespace mgpu::launcher
