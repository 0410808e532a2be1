#include "rendezvous/store/relay_link.hpp"

#include <utility>

namespace mgpu::rendezvous::store {

using Kind = RelayRecord::Kind;

RelayLink::~RelayLink() {
  for (const auto& [id, number] : std::exchange(numbers_, {})) server_.close_relayed(id);
}

void RelayLink::receive(std::string_view records) {
  RelayRecordReader reader(records);
  RelayRecord record;
  while (reader.next(record)) {
    if (record.kind == Kind::open) {
      open(record.client);
      continue;
    }
    const auto found = clients_.find(record.client);
    if (found == clients_.end()) continue;  // closed by the store, which the agent learns later
    const ClientId id = found->second.id;
    if (record.kind == Kind::data)
      server_.receive_relayed(id, record.bytes);
    else if (record.kind == Kind::credit)
      server_.allow_relayed(id, record.number);
    else
      server_.close_relayed(id);
  }
}

void RelayLink::open(RelayedClient number) {
  if (clients_.contains(number)) throw RelayError("a store record that opens a client twice");
  if (const auto id = server_.open_relayed(*this)) {
    clients_[number].id = *id;
    numbers_[*id] = number;
  } else {
    put({.client = number, .kind = Kind::close});
  }
}

void RelayLink::put(const RelayRecord& record) {
  const bool was_empty = output_.empty();
  put_record(output_, record);
  if (was_empty) has_output_();
}

void RelayLink::replies(ClientId client, std::string_view bytes) {
  put({.client = numbers_.at(client), .kind = Kind::data, .bytes = bytes});
}

void RelayLink::consumed(ClientId client, std::size_t bytes) {
  const RelayedClient number = numbers_.at(client);
  auto& waiting = clients_.at(number).consumed;
  waiting += bytes;
  if (waiting < kRelayCreditStep) return;
  put({.client = number,
       .kind = Kind::credit,
       .number = static_cast<std::uint32_t>(std::exchange(waiting, 0))});
}

void RelayLink::closed(ClientId client) {
  const auto found = numbers_.find(client);
  if (found == numbers_.end()) return;
  put({.client = found->second, .kind = Kind::close});
  clients_.erase(found->second);
  numbers_.erase(found);
}

}  // namespace mgpu::rendezvous::store
