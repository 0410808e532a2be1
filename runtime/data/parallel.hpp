#pragma once

#include <cstddef>
#include <functional>

namespace mgpu::data {

// The number of cores this process may run on, at least 1.
int usable_cores();

// Calls work(0) ... work(count - 1) on up to `threads` threads (0: one per usable core). The calls
// start in this order. Returns when all are done. After an exception, no new calls start, and the
// exception of the lowest index is rethrown: the same one with any number of threads.
void for_each_index(std::size_t count, int threads, const std::function<void(std::size_t)>& work);

}  // namespace mgpu::data
