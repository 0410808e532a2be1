#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "rendezvous/base/background_thread.hpp"

namespace mgpu::train {

// A value that a thread of its own computes from now on. Destroying this does not wait for the
// thread, so that an error elsewhere ends the process at once: `work` must own all that it uses.
template <class T>
class Background {
 public:
  explicit Background(std::function<T()> work) {
    rendezvous::run_in_background([result = result_, work = std::move(work)] {
      std::optional<T> value;
      std::exception_ptr error;
      try {
        value.emplace(work());
      } catch (...) {
        error = std::current_exception();
      }
      // Given away whole: the other thread may free the exception at once.
      const std::lock_guard lock(result->mutex);
      result->value = std::move(value);
      result->error = std::move(error);
      result->ready.notify_one();
    });
  }

  // Waits for the value, or throws the error of `work`. Call it once.
  T take() {
    std::unique_lock lock(result_->mutex);
    result_->ready.wait(lock, [this] { return result_->value || result_->error; });
    if (result_->error) std::rethrow_exception(std::exchange(result_->error, nullptr));
    return *std::move(result_->value);
  }

 private:
  struct Result {
    std::mutex mutex;
    std::condition_variable ready;
    std::optional<T> value;
    std::exception_ptr error;
  };

  std::shared_ptr<Result> result_ = std::make_shared<Result>();
};

}  // namespace mgpu::train
