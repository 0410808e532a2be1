#include "rendezvous/store/request_policy.hpp"

#include <algorithm>

namespace mgpu::rendezvous::store {

bool RequestPolicy::permits(const Request& request) const {
  if (request.size() > max_request_bytes) return false;
  if (!read_only) return true;
  switch (request.opcode) {
    case Opcode::validate:
    case Opcode::ping:
    case Opcode::get:
    case Opcode::multi_get:
    case Opcode::check:
    case Opcode::wait:
    case Opcode::cancel_wait:
    case Opcode::num_keys:
    case Opcode::list_keys:
    case Opcode::queue_length:
      return true;
    case Opcode::add: {
      const auto key = FieldReader(request.fields).string();
      return std::find(counters.begin(), counters.end(), key) != counters.end();
    }
    case Opcode::set:
    case Opcode::compare_set:
    case Opcode::delete_key:
    case Opcode::append:
    case Opcode::multi_set:
    case Opcode::queue_push:
    case Opcode::queue_pop:
    case Opcode::barrier:
      return false;
  }
  return false;
}

}  // namespace mgpu::rendezvous::store
