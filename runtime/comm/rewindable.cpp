#include "runtime/comm/rewindable.hpp"

namespace mgpu::comm {

template <class Start>
Pending Rewindable::pass_on(Start start) {
  if (left_out_ > 0) {
    --left_out_;
    return Pending();
  }
  Pending pending = start();
  ++started_;
  return pending;
}

Pending Rewindable::all_reduce(Tensor tensor, const char* what) {
  return pass_on([&] { return comm_.all_reduce(std::move(tensor), what); });
}

Pending Rewindable::reduce_scatter(Tensor out, Tensor in, const char* what) {
  return pass_on([&] { return comm_.reduce_scatter(std::move(out), std::move(in), what); });
}

Pending Rewindable::all_gather(Tensor out, Tensor in, const char* what) {
  return pass_on([&] { return comm_.all_gather(std::move(out), std::move(in), what); });
}

Pending Rewindable::all_to_all(Tensor out, Tensor in, const char* what) {
  return pass_on([&] { return comm_.all_to_all(std::move(out), std::move(in), what); });
}

Pending Rewindable::broadcast(Tensor tensor, int from, const char* what) {
  return pass_on([&] { return comm_.broadcast(std::move(tensor), from, what); });
}

void Rewindable::barrier(const char* what) {
  pass_on([&] {
    comm_.barrier(what);
    return Pending();
  });
}

}  // namespace mgpu::comm
