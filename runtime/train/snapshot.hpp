#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/checkpoint/file_images.hpp"
#include "runtime/checkpoint/safetensors.hpp"
#include "runtime/train/host_buffer.hpp"

namespace mgpu::train {

// Copies of tensors in host memory, laid out as the bytes of safetensors files. The memory is kept
// for the next snapshot. From a GPU, tensors are copied while it computes:
//
//   lay_out(files); add(tensor) for each of them; start()
//   hold_updates() before the tensors are written to again
//   wait(), and then images(), in any thread
//
// Everything else is for the thread that trains.
class Snapshot {
 public:
  struct File {
    std::string name;  // relative to the checkpoint's folder
    std::vector<checkpoint::TensorPlan> tensors;
  };

  explicit Snapshot(at::Device device);
  ~Snapshot();
  Snapshot(const Snapshot&) = delete;
  Snapshot& operator=(const Snapshot&) = delete;

  // The memory that a snapshot of these files needs. Their tensors have different names.
  static std::uint64_t size_of(const std::vector<File>& files);
  // Returns false if the system has too little memory.
  bool reserve(std::uint64_t size) { return buffer_.reserve(size); }
  std::uint64_t reserved() const { return buffer_.size(); }
  void release();

  // Begins a snapshot, for which memory is reserved.
  void lay_out(const std::vector<File>& files);
  // A tensor of a file; it is converted to the type in the file. If it stays unchanged until
  // hold_updates(), the copy is made beside other work (`lasting`), else before work that is queued
  // later.
  void add(const std::string& name, const at::Tensor& tensor, bool lasting);
  void start();

  // Work that is queued from now on runs after the copies. Does nothing if they are complete.
  void hold_updates();
  // How long hold_updates() has held up the GPU in this snapshot. Call it after wait().
  double held_seconds();

  void wait();
  // Valid until the next lay_out().
  std::vector<checkpoint::FileImage> images() const;

 private:
  struct Device;  // the streams and events of a GPU
  struct Place {
    std::uint64_t begin = 0, size = 0;
    at::ScalarType type = at::kByte;
    bool added = false;
  };
  struct Image {
    std::string name;
    std::uint64_t begin = 0, size = 0;
  };

  void copy(std::byte* to, const at::Tensor& from);

  HostBuffer buffer_;
  std::vector<Image> images_;
  std::map<std::string, Place, std::less<>> places_;
  std::unique_ptr<Device> device_;  // null: tensors are in host memory
};

}  // namespace mgpu::train
