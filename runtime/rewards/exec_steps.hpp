#pragma once

namespace mgpu::rewards {

// Steps between fork and exec. All are async-signal-safe.

// Default handlers, and no signal blocked.
void reset_signals();

// Closes all descriptors from `first` on. The libraries that we use open descriptors that an exec
// does not close, such as connections to other ranks.
void close_from(int first);

}  // namespace mgpu::rewards
