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

std::string_view value_or_nothing(const std::string* value) {
  return value ? std::string_view(*value) : std::string_view();
}

}  // namespace

bool Session::receive(std::string_view bytes, Memory& memory, Turn& turn) {
  std::size_t used = 0;
  if (kept_.empty()) {
    const bool good = take_up(bytes, used, memory, turn);
    if (good) kept_.assign(bytes.substr(used));
    return good;
  }
  kept_.append(bytes);
  if (!take_up(kept_, used, memory, turn)) return false;
  kept_.erase(0, used);
  // A buffer that once held something large would stay for the life of the connection.
  if (used > 0 && kept_.capacity() > 2 * kept_.size() + 64) kept_.shrink_to_fit();
  return true;
}

bool Session::take_up(std::string_view bytes, std::size_t& used, Memory& memory, Turn& turn) {
  held_ = false;
  while (used < bytes.size()) {
    if (turn.replies.size() >= kTurnBytes) {
      held_ = true;
      return true;
    }
    Request request;
    switch (scanner_.scan(bytes.substr(used), request)) {
      case RequestScanner::Found::partial:
        return true;
      case RequestScanner::Found::violation:
        return false;
      case RequestScanner::Found::whole:
        break;
    }
    if (!carry_out(request, memory, turn)) return false;
    if (held_) return true;
    used += request.size();
  }
  return true;
}

void Session::release(const Released& released, Turn& turn) const {
  for (const ClientId client : released) {
    if (client == id_)
      put_number(turn.replies, kStopWaiting);
    else
      turn.released.push_back(client);
  }
}

bool Session::carry_out(const Request& request, Memory& memory, Turn& turn) {
  FieldReader fields(request.fields);
  switch (request.opcode) {
    case Opcode::validate:
      return true;
    case Opcode::ping:
      turn.replies.append(request.fields);
      return true;
    case Opcode::get:
      put_string(turn.replies, value_or_nothing(memory.get(fields.string())));
      return true;
    case Opcode::set: {
      const auto key = fields.string();
      release(memory.set(key, fields.string()), turn);
      return true;
    }
    case Opcode::append: {
      const auto key = fields.string();
      release(memory.append(key, fields.string()), turn);
      return true;
    }
    case Opcode::compare_set: {
      const auto key = fields.string();
      const auto expected = fields.string();
      const auto exchanged = memory.compare_set(key, expected, fields.string());
      put_string(turn.replies, exchanged.value);
      release(exchanged.released, turn);
      return true;
    }
    case Opcode::add:
    case Opcode::barrier:
    case Opcode::num_keys:
    case Opcode::delete_key:
      return carry_out_number(request, memory, turn);
    case Opcode::queue_push:
    case Opcode::queue_pop:
    case Opcode::queue_length:
      return carry_out_queue(request, memory, turn);
    case Opcode::check:
    case Opcode::wait:
    case Opcode::multi_get:
    case Opcode::multi_set:
    case Opcode::cancel_wait:
    case Opcode::list_keys:
      return carry_out_keys(request, memory, turn);
  }
  return false;
}

// ADD, BARRIER, GETNUMKEYS, DELETE_KEY. As c10d's server does, a client that counts on a value
// which is no number loses its connection.
bool Session::carry_out_number(const Request& request, Memory& memory, Turn& turn) {
  FieldReader fields(request.fields);
  if (request.opcode == Opcode::num_keys) {
    put_number(turn.replies, static_cast<std::int64_t>(memory.keys()));
    return true;
  }
  const auto key = fields.string();
  if (request.opcode == Opcode::delete_key) {
    put_number<std::int64_t>(turn.replies, memory.remove(key) ? 1 : 0);
    return true;
  }
  const auto number = fields.number<std::int64_t>();
  if (request.opcode == Opcode::add) {
    const auto sum = memory.add(key, number);
    if (!sum) return false;
    put_number(turn.replies, sum->value);
    release(sum->released, turn);
    return true;
  }
  const auto arrival = memory.barrier(id_, key, number);
  if (!arrival) return false;
  if (arrival->passed) put_number(turn.replies, kStopWaiting);
  release(arrival->released, turn);
  return true;
}

bool Session::carry_out_queue(const Request& request, Memory& memory, Turn& turn) {
  FieldReader fields(request.fields);
  const auto key = fields.string();
  if (request.opcode == Opcode::queue_push) {
    release(memory.push(key, fields.string()), turn);
    return true;
  }
  put_number(turn.replies, static_cast<std::int64_t>(memory.queue_length(key)));
  if (request.opcode == Opcode::queue_pop)
    if (const auto value = memory.pop(key)) put_string(turn.replies, *value);
  return true;
}

bool Session::carry_out_keys(const Request& request, Memory& memory, Turn& turn) {
  FieldReader fields(request.fields);
  switch (request.opcode) {
    case Opcode::check: {
      bool all = true;
      for (auto left = fields.number<std::uint64_t>(); left > 0 && all; --left)
        all = memory.exists(fields.string());
      put_number(turn.replies, all ? kReady : kNotReady);
      return true;
    }
    case Opcode::wait:
      if (memory.wait(id_, key_list(fields))) put_number(turn.replies, kStopWaiting);
      return true;
    case Opcode::cancel_wait:
      memory.stop_waiting(id_);
      put_number(turn.replies, kWaitCanceled);
      return true;
    case Opcode::multi_set:
      for (auto left = fields.number<std::int64_t>(); left > 0; --left) {
        const auto key = fields.string();
        release(memory.set(key, fields.string()), turn);
      }
      return true;
    case Opcode::list_keys:
      put_number(turn.replies, static_cast<std::int64_t>(memory.keys()));
      memory.for_each_key([&](std::string_view key) { put_string(turn.replies, key); });
      return true;
    default:
      answer_some(request.fields, memory, turn);
      return true;
  }
}

// MULTI_GET, which can ask for far more than it weighs: as many values as the turn has room for.
void Session::answer_some(std::string_view all, const Memory& memory, Turn& turn) {
  if (answered_ == 0) answered_ = sizeof(std::uint64_t);  // the count; the keys go to the end
  FieldReader fields(all.substr(answered_));
  while (!fields.empty() && turn.replies.size() < kTurnBytes)
    put_string(turn.replies, value_or_nothing(memory.get(fields.string())));
  held_ = !fields.empty();
  answered_ = held_ ? all.size() - fields.left() : 0;
}

}  // namespace mgpu::rendezvous::store
