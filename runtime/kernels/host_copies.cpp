#include "runtime/kernels/host_copies.hpp"

#include <ATen/ops/empty.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <utility>

namespace mgpu::ops {

struct HostCopies::Side {
  explicit Side(at::Device device)
      : backend(device.type()),
        stream(backend.getStreamFromGlobalPool(device)),
        queued(device.type()),
        returned(device.type()) {}

  c10::Stream current() const { return backend.getStream(stream.device()); }

  // What is queued on `stream` from here on runs behind all that is queued on the current stream.
  void follow() {
    queued.record(current());
    queued.block(stream);
  }

  c10::impl::VirtualGuardImpl backend;
  c10::Stream stream;
  // Waiting refers to what was recorded last, so each serves all copies.
  c10::Event queued, returned;
};

HostCopies::HostCopies(at::Device device) : device_(device) {
  if (device.is_cuda()) side_ = std::make_unique<Side>(device);
}

HostCopies::~HostCopies() {
  // After an exception: the memory must not be used again before the copy is done.
  if (returning_.defined()) take();
}

Tensor HostCopies::to_host(const Tensor& x) {
  Tensor host = at::empty(x.sizes(), x.options().device(at::kCPU).pinned_memory(x.is_cuda()));
  if (!side_) return host.copy_(x);
  side_->follow();
  const c10::StreamGuard guard(side_->stream);
  host.copy_(x, /*non_blocking=*/true);
  side_->backend.recordDataPtrOnStream(x.storage().data_ptr(), side_->stream);
  return host;
}

void HostCopies::begin_return(const Tensor& on_host) {
  if (returning_.defined()) take();  // as in the destructor
  // Allocated for the current stream, whose earlier work may still use this memory.
  returning_ = at::empty(on_host.sizes(), on_host.options().device(device_).pinned_memory(false));
  if (!side_) {
    returning_.copy_(on_host);
    return;
  }
  side_->follow();
  const c10::StreamGuard guard(side_->stream);
  returning_.copy_(on_host, /*non_blocking=*/true);
  side_->returned.record(side_->stream);
}

Tensor HostCopies::take() {
  if (side_) side_->returned.block(side_->current());
  return std::exchange(returning_, {});
}

}  // namespace mgpu::ops
