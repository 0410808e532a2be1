#include "runtime/train/snapshot.hpp"

#include <ATen/cuda/CUDAEvent.h>
#include <ATen/ops/from_blob.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <cstring>
#include <stdexcept>
#include <utility>

#include "runtime/train/weights_io.hpp"

namespace mgpu::train {
namespace {

constexpr std::uint64_t kFileAlignment = 4096;

std::uint64_t aligned(std::uint64_t at) {
  return (at + kFileAlignment - 1) / kFileAlignment * kFileAlignment;
}

}  // namespace

struct Snapshot::Device {
  explicit Device(at::Device device)
      : side(c10::cuda::getStreamFromPool(false, device.index())),
        held_from(cudaEventDefault),
        held_until(cudaEventDefault) {}

  struct Copy {
    std::byte* to;
    at::Tensor from;
  };

  c10::cuda::CUDAStream side;
  std::vector<Copy> lasting;  // until start()
  at::cuda::CUDAEvent begin;  // of the copies on the side stream
  at::cuda::CUDAEvent complete;
  at::cuda::CUDAEvent held_from, held_until;
  bool running = false;  // start() was called, and hold_updates() may still have to wait
  bool held = false;     // held_from and held_until are of this snapshot
};

Snapshot::Snapshot(at::Device device) : buffer_(device.is_cuda()) {
  if (device.is_cuda()) device_ = std::make_unique<Device>(device);
}

Snapshot::~Snapshot() {
  if (device_) cudaStreamSynchronize(device_->side.stream());  // its copies write to the buffer
}

std::uint64_t Snapshot::size_of(const std::vector<File>& files) {
  std::uint64_t size = 0;
  for (const auto& file : files)
    size = aligned(size) + checkpoint::plan_file(file.name, file.tensors).size;
  return size;
}

void Snapshot::release() {
  wait();
  images_.clear();
  buffer_.release();
}

void Snapshot::lay_out(const std::vector<File>& files) {
  wait();
  images_.clear();
  places_.clear();
  std::uint64_t at = 0;
  for (const auto& file : files) {
    const auto plan = checkpoint::plan_file(file.name, file.tensors);
    at = aligned(at);
    if (at + plan.size > buffer_.size()) throw std::logic_error("a snapshot exceeds its memory");
    std::memcpy(buffer_.data() + at, plan.header.data(), plan.header.size());
    for (const auto& tensor : plan.tensors)
      if (!places_
               .emplace(tensor.plan.name, Place{at + tensor.begin, tensor.end - tensor.begin,
                                                scalar_type(tensor.plan.dtype)})
               .second)
        throw std::logic_error("two files of a snapshot have the tensor " + tensor.plan.name);
    images_.push_back({file.name, at, plan.size});
    at += plan.size;
  }
  if (!device_) return;
  device_->lasting.clear();
  device_->running = device_->held = false;
}

void Snapshot::add(const std::string& name, const at::Tensor& tensor, bool lasting) {
  const auto found = places_.find(name);
  if (found == places_.end()) throw std::logic_error("a snapshot has no tensor " + name);
  auto& place = found->second;
  const auto converted = tensor.to(place.type).contiguous();
  if (place.added || converted.nbytes() != place.size)
    throw std::logic_error("a snapshot has another tensor " + name);
  place.added = true;
  auto* const to = buffer_.data() + place.begin;
  if (device_ && lasting && converted.is_alias_of(tensor))
    device_->lasting.push_back({to, converted});
  else
    copy(to, converted);
}

// On the current stream: memory that the caller frees afterwards is reused after the copy only.
// What PiSSA appends makes a tensor one in host memory, which is copied at once.
void Snapshot::copy(std::byte* to, const at::Tensor& from) {
  if (from.nbytes() == 0) return;
  if (!from.is_cuda()) {
    at::from_blob(to, from.sizes(), from.scalar_type()).copy_(from);
    return;
  }
  C10_CUDA_CHECK(cudaMemcpyAsync(to, from.const_data_ptr(), from.nbytes(), cudaMemcpyDeviceToHost,
                                 c10::cuda::getCurrentCUDAStream()));
}

void Snapshot::start() {
  for (const auto& [name, place] : places_)
    if (!place.added) throw std::logic_error("a snapshot lacks the tensor " + name);
  if (!device_) return;
  device_->begin.record();
  const c10::cuda::CUDAStreamGuard guard(device_->side);
  device_->begin.block(device_->side);
  for (const auto& [to, from] : device_->lasting) copy(to, from);
  device_->complete.record(device_->side);
  device_->lasting.clear();
  device_->running = true;
}

void Snapshot::hold_updates() {
  if (!device_ || !std::exchange(device_->running, false) || device_->complete.query()) return;
  const auto stream = c10::cuda::getCurrentCUDAStream();
  device_->held_from.record(stream);
  device_->complete.block(stream);
  device_->held_until.record(stream);
  device_->held = true;
}

double Snapshot::held_seconds() {
  if (!device_ || !device_->held) return 0;
  device_->held_until.synchronize();
  return device_->held_from.elapsed_time(device_->held_until) / 1000.0;
}

void Snapshot::wait() {
  if (!device_) return;
  const c10::cuda::CUDAGuard guard(device_->side.device());
  device_->side.synchronize();
}

std::vector<checkpoint::FileImage> Snapshot::images() const {
  std::vector<checkpoint::FileImage> images;
  for (const auto& [name, begin, size] : images_)
    images.push_back({name, {buffer_.data() + begin, static_cast<std::size_t>(size)}});
  return images;
}

}  // namespace mgpu::train
