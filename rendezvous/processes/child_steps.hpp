#pragma once

#include <signal.h>

namespace mgpu::rendezvous {

// Steps between the creation of a process and exec. All are async-signal-safe.

// Signals get their default, except those that are ignored now and are in `stay_ignored`.
void reset_signals(const sigset_t& stay_ignored);

// Closes all descriptors from `first` on. Libraries open descriptors that an exec does not close,
// such as connections to other ranks.
void close_from(int first);

}  // namespace mgpu::rendezvous
