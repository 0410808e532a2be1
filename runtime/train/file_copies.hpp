#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/checkpoint/weights.hpp"

namespace mgpu::train {

// Copies tensors from files to the memory of a device on several threads, because one thread reads
// a few GB/s only. For a GPU the bytes go through pinned memory, on streams of their own. A tensor
// may also be in host memory.
class FileCopies {
 public:
  explicit FileCopies(at::Device device, int threads = default_threads());

  // Whether add() can copy elements of `from` to `to`: they must have the same type.
  static bool can_copy(const at::Tensor& to, const checkpoint::TensorView& from);
  // Plans to copy the elements of `from` from `begin` on to all of `to`, which is contiguous. The
  // file must stay open until run() returns.
  void add(const at::Tensor& to, const checkpoint::TensorView& from, std::int64_t begin);

  // Makes the planned copies and returns when all bytes have arrived. If several fail, throws the
  // error of the one that was added first; it names the file.
  void run();

  static int default_threads();

 private:
  struct Piece {
    std::byte* to;
    bool on_host;
    const checkpoint::MappedFile* file;
    std::span<const std::byte> from;
  };
  class Reader;

  at::Device device_;
  int threads_;
  std::vector<Piece> pieces_;
};

}  // namespace mgpu::train
