#include "runtime/train/file_copies.hpp"

#include <ATen/cuda/CUDAEvent.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <limits>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <thread>

#include "runtime/data/parallel.hpp"
#include "runtime/train/device.hpp"
#include "runtime/train/weights_io.hpp"

namespace mgpu::train {
namespace {

constexpr std::size_t kPiece = std::size_t{64} << 20;  // what a thread takes at a time
constexpr std::size_t kBuffer = std::size_t{4} << 20;  // of pinned memory, two for each thread
constexpr int kMostThreads = 8;  // together they read about as fast as a GPU receives

}  // namespace

// What one thread needs to copy to the device. Destroying it waits for its copies.
class FileCopies::Reader {
 public:
  explicit Reader(at::Device device) {
    if (!device.is_cuda()) return;
    guard_.emplace(device);
    stream_.emplace(c10::cuda::getStreamFromPool(false, device.index()));
    for (auto& buffer : buffers_)
      buffer.memory = at::empty({static_cast<std::int64_t>(kBuffer)},
                                at::TensorOptions(at::kByte).pinned_memory(true));
  }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;
  ~Reader() {
    if (stream_) cudaStreamSynchronize(stream_->stream());  // the buffers are freed next
  }

  void copy(const Piece& piece) {
    if (!stream_ || piece.on_host) {
      piece.file->read(piece.from, piece.to);
      return;
    }
    for (std::size_t at = 0; at < piece.from.size(); at += kBuffer) {
      const auto part = piece.from.subspan(at, std::min(kBuffer, piece.from.size() - at));
      auto& buffer = buffers_[next_];
      next_ = 1 - next_;
      buffer.sent.synchronize();
      auto* const host = static_cast<std::byte*>(buffer.memory.data_ptr());
      piece.file->read(part, host);
      C10_CUDA_CHECK(cudaMemcpyAsync(piece.to + at, host, part.size(), cudaMemcpyHostToDevice,
                                     stream_->stream()));
      buffer.sent.record(*stream_);
    }
  }

  void finish() {
    if (stream_) stream_->synchronize();
  }

 private:
  struct Buffer {
    at::Tensor memory;
    at::cuda::CUDAEvent sent;
  };

  std::optional<c10::cuda::CUDAGuard> guard_;
  std::optional<c10::cuda::CUDAStream> stream_;
  Buffer buffers_[2];
  int next_ = 0;
};

FileCopies::FileCopies(at::Device device, int threads) : device_(device), threads_(threads) {}

int FileCopies::default_threads() {
  return std::clamp(data::usable_cores(), 1, kMostThreads);
}

bool FileCopies::can_copy(const at::Tensor& to, const checkpoint::TensorView& from) {
  return from.source != nullptr && scalar_type(from.dtype) == to.scalar_type() &&
         to.is_contiguous();
}

void FileCopies::add(const at::Tensor& to, const checkpoint::TensorView& from, std::int64_t begin) {
  const auto bytes = from.bytes.subspan(static_cast<std::size_t>(begin) * to.element_size(),
                                        static_cast<std::size_t>(to.nbytes()));
  auto* const memory = static_cast<std::byte*>(to.data_ptr());
  for (std::size_t at = 0; at < bytes.size(); at += kPiece)
    pieces_.push_back({memory + at, to.is_cpu(), from.source,
                       bytes.subspan(at, std::min(kPiece, bytes.size() - at))});
}

void FileCopies::run() {
  wait_for(device_);  // what the device still writes to this memory must not come after the copies
  std::atomic<std::size_t> next = 0;
  std::mutex mutex;
  std::size_t failed = std::numeric_limits<std::size_t>::max();
  std::exception_ptr error;
  const auto fail = [&](std::size_t piece) {
    const std::lock_guard lock(mutex);
    if (piece < failed) {
      failed = piece;
      error = std::current_exception();
    }
  };
  const auto work = [&] {
    std::size_t i = 0;
    try {
      Reader reader(device_);
      while ((i = next++) < pieces_.size()) reader.copy(pieces_[i]);
      reader.finish();
    } catch (...) {
      fail(i);
      next = pieces_.size();
    }
  };
  {
    std::vector<std::jthread> others;
    const auto wanted = std::min(static_cast<std::size_t>(threads_), pieces_.size());
    for (std::size_t i = 1; i < wanted; ++i) others.emplace_back(work);
    if (wanted > 0) work();
  }
  pieces_.clear();
  if (error) std::rethrow_exception(error);
}

}  // namespace mgpu::train
