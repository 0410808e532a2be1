#pragma once

namespace mgpu::launcher {

// A port that is free now and that no outgoing connection will take before somebody binds it: from
// below the range that the kernel hands out itself. Throws when there is none.
int free_port();

}  // namespace mgpu::launcher
