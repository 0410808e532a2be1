#include "runtime/comm/rewindable.hpp"

namespace mgpu::comm {

bool Rewindable::starts() {
  if (left_out_ > 0) {
    --left_out_;
    return false;
  }
  ++started_;
  return true;
}

Pending Rewindable::all_reduce(Tensor tensor, const char* what) {
  return starts() ? comm_.all_reduce(std::move(tensor), what) : Pending();
}

Pending Rewindable::reduce_scatter(Tensor out, Tensor in, const char* what) {
  return starts() ? comm_.reduce_scatter(std::move(out), std::move(in), what) : Pending();
}

Pending Rewindable::all_gather(Tensor out, Tensor in, const char* what) {
  return starts() ? comm_.all_gather(std::move(out), std::move(in), what) : Pending();
}

Pending Rewindable::all_to_all(Tensor out, Tensor in, const char* what) {
  return starts() ? comm_.all_to_all(std::move(out), std::move(in), what) : Pending();
}

Pending Rewindable::broadcast(Tensor tensor, int from, const char* what) {
  return starts() ? comm_.broadcast(std::move(tensor), from, what) : Pending();
}

void Rewindable::barrier(const char* what) {
  if (starts()) comm_.barrier(what);
}

}  // namespace mgpu::comm
