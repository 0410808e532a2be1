#include "runtime/data/parallel.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace mgpu::data {

int usable_cores() {
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

void for_each_index(std::size_t count, int threads, const std::function<void(std::size_t)>& work) {
  std::atomic<std::size_t> next{0};
  std::atomic<bool> failed{false};
  std::mutex mutex;
  std::exception_ptr error;
  std::size_t error_index = count;

  const auto run = [&] {
    while (!failed) {
      const std::size_t index = next++;
      if (index >= count) return;
      try {
        work(index);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (index < error_index) {
          error_index = index;
          error = std::current_exception();
        }
        failed = true;
      }
    }
  };
  {
    const auto wanted = static_cast<std::size_t>(threads > 0 ? threads : usable_cores());
    std::vector<std::jthread> others;
    for (std::size_t i = 1; i < std::min(wanted, count); ++i) others.emplace_back(run);
    run();
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace mgpu::data
