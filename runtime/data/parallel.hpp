#pragma once

#include <cstddef>
#include <functional>

namespace mgpu::data {

// The cores this process may run on, at least 1.
int usable_cores();

// Calls work(0) ... work(count - 1), in order of their start, on up to `threads` threads (0: one a
// usable core). Returns when all are done. If calls throw, no new ones are started, and the
// exception of the lowest index goes on to the caller: the same one at any number of threads.
void for_each_index(std::size_t count, int threads, const std::function<void(std::size_t)>& work);

}  // namespace mgpu::data
