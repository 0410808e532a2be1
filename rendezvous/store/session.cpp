#include "rendezvous/store/session.hpp"

#include <cstdint>
#include <vector>

namespace mgpu::rendezvous::store {
namespace {

std::vector<std::string_view> key_list(FieldReader fields) {
  std::vector<std::string_view> keys(fields.number<std::uint64_t>());
  for (auto& key : keys) key = fields.string();
  return keys;
}

// Whether the request can add to what the store keeps.
bool adds(Opcode opcode) {
  switch (opcode) {
    case Opcode::set:
    case Opcode::compare_set:
    case Opcode::add:
    case Opcode::append:
    case Opcode::multi_set:
    case Opcode::queue_push:
    case Opcode::barrier:
    case Opcode::wait:
      return true;
    default:
      return false;
  }
}

std::string_view value_or_empty(const std::string* value) {
  return value ? std::string_view(*value) : std::string_view();
}

}  // namespace

bool Session::receive(std::string_view bytes, Memory& memory, SessionOutput& output) {
  std::size_t used = 0;
  if (buffer_.empty()) {
    const bool good = process(bytes, used, memory, output);
    if (good) buffer_.assign(bytes.substr(used));
    return good;
  }
  buffer_.append(bytes);
  if (!process(buffer_, used, memory, output)) return false;
  buffer_.erase(0, used);
  // Otherwise a large buffer would be kept for the life of the connection.
  if (used > 0 && buffer_.capacity() > 2 * buffer_.size() + 64) buffer_.shrink_to_fit();
  return true;
}

bool Session::process(std::string_view bytes, std::size_t& used, Memory& memory,
                      SessionOutput& output) {
  has_pending_ = false;
  while (used < bytes.size()) {
    if (output.replies.size() >= kMaxOutputBytes) {
      has_pending_ = true;
      return true;
    }
    Request request;
    switch (scanner_.scan(bytes.substr(used), request)) {
      case RequestScanner::Found::partial:
        return !policy_ || bytes.size() - used <= policy_->max_request_bytes;
      case RequestScanner::Found::violation:
        return false;
      case RequestScanner::Found::whole:
        break;
    }
    if (policy_ && !policy_->permits(request)) return false;
    if (!execute(request, memory, output)) return false;
    if (has_pending_) return true;
    used += request.size();
  }
  return true;
}

void Session::release(const Released& released, SessionOutput& output) const {
  for (const ClientId client : released) {
    if (client == id_)
      put_number(output.replies, kStopWaiting);
    else
      output.released.push_back(client);
  }
}

bool Session::execute(const Request& request, Memory& memory, SessionOutput& output) {
  if (adds(request.opcode) && !memory.has_room(request.size())) return false;
  FieldReader fields(request.fields);
  switch (request.opcode) {
    case Opcode::validate:
      return true;
    case Opcode::ping:
      output.replies.append(request.fields);
      return true;
    case Opcode::get:
      put_string(output.replies, value_or_empty(memory.get(fields.string())));
      return true;
    case Opcode::set: {
      const auto key = fields.string();
      release(memory.set(key, fields.string()), output);
      return true;
    }
    case Opcode::append: {
      const auto key = fields.string();
      release(memory.append(key, fields.string()), output);
      return true;
    }
    case Opcode::compare_set: {
      const auto key = fields.string();
      const auto expected = fields.string();
      const auto exchanged = memory.compare_set(key, expected, fields.string());
      put_string(output.replies, exchanged.value);
      release(exchanged.released, output);
      return true;
    }
    case Opcode::add:
    case Opcode::barrier:
    case Opcode::num_keys:
    case Opcode::delete_key:
      return execute_number(request, memory, output);
    case Opcode::queue_push:
    case Opcode::queue_pop:
    case Opcode::queue_length:
      return execute_queue(request, memory, output);
    case Opcode::check:
    case Opcode::wait:
    case Opcode::multi_get:
    case Opcode::multi_set:
    case Opcode::cancel_wait:
    case Opcode::list_keys:
      return execute_keys(request, memory, output);
  }
  return false;
}

// ADD, BARRIER, GETNUMKEYS, DELETE_KEY. As in c10d's server, ADD or BARRIER on a value that is not
// a number closes the client's connection.
bool Session::execute_number(const Request& request, Memory& memory, SessionOutput& output) {
  FieldReader fields(request.fields);
  if (request.opcode == Opcode::num_keys) {
    put_number(output.replies, static_cast<std::int64_t>(memory.keys()));
    return true;
  }
  const auto key = fields.string();
  if (request.opcode == Opcode::delete_key) {
    put_number<std::int64_t>(output.replies, memory.remove(key) ? 1 : 0);
    return true;
  }
  const auto number = fields.number<std::int64_t>();
  if (request.opcode == Opcode::add) {
    const auto sum = memory.add(key, number);
    if (!sum) return false;
    put_number(output.replies, sum->value);
    release(sum->released, output);
    return true;
  }
  const auto arrival = memory.barrier(id_, key, number);
  if (!arrival) return false;
  if (arrival->passed) put_number(output.replies, kStopWaiting);
  release(arrival->released, output);
  return true;
}

bool Session::execute_queue(const Request& request, Memory& memory, SessionOutput& output) {
  FieldReader fields(request.fields);
  const auto key = fields.string();
  if (request.opcode == Opcode::queue_push) {
    release(memory.push(key, fields.string()), output);
    return true;
  }
  put_number(output.replies, static_cast<std::int64_t>(memory.queue_length(key)));
  if (request.opcode == Opcode::queue_pop)
    if (const auto value = memory.pop(key)) put_string(output.replies, *value);
  return true;
}

bool Session::execute_keys(const Request& request, Memory& memory, SessionOutput& output) {
  FieldReader fields(request.fields);
  switch (request.opcode) {
    case Opcode::check: {
      bool all = true;
      for (auto left = fields.number<std::uint64_t>(); left > 0 && all; --left)
        all = memory.exists(fields.string());
      put_number(output.replies, all ? kReady : kNotReady);
      return true;
    }
    case Opcode::wait:
      if (memory.wait(id_, key_list(fields))) put_number(output.replies, kStopWaiting);
      return true;
    case Opcode::cancel_wait:
      memory.stop_waiting(id_);
      put_number(output.replies, kWaitCanceled);
      return true;
    case Opcode::multi_set:
      for (auto left = fields.number<std::int64_t>(); left > 0; --left) {
        const auto key = fields.string();
        release(memory.set(key, fields.string()), output);
      }
      return true;
    case Opcode::list_keys:
      put_number(output.replies, static_cast<std::int64_t>(memory.keys()));
      memory.for_each_key([&](std::string_view key) { put_string(output.replies, key); });
      return true;
    default:
      reply_to_multi_get(request.fields, memory, output);
      return true;
  }
}

// MULTI_GET, a small request for possibly large replies: writes as many values as the output can
// hold.
void Session::reply_to_multi_get(std::string_view all, const Memory& memory,
                                 SessionOutput& output) {
  if (multi_get_position_ == 0)
    multi_get_position_ = sizeof(std::uint64_t);  // skip the count; keys fill the rest
  FieldReader fields(all.substr(multi_get_position_));
  while (!fields.empty() && output.replies.size() < kMaxOutputBytes)
    put_string(output.replies, value_or_empty(memory.get(fields.string())));
  has_pending_ = !fields.empty();
  multi_get_position_ = has_pending_ ? all.size() - fields.left() : 0;
}

}  // namespace mgpu::rendezvous::store
