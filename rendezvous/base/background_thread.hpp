#pragma once

#include <functional>

namespace mgpu::rendezvous {

// Runs `work` in a thread that nothing waits for. All signals are blocked in it: they belong to the
// event loop. Throws std::runtime_error if the thread cannot be started.
void run_in_background(std::function<void()> work);

}  // namespace mgpu::rendezvous
