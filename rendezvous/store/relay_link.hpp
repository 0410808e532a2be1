#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "rendezvous/store/relay_records.hpp"
#include "rendezvous/store/server.hpp"

namespace mgpu::rendezvous::store {

// The leader's end of a connection over which an agent carries the bytes of the store's clients on
// its node. Without sockets: records in, records out.
class RelayLink : private RelayOutput {
 public:
  // `has_output` is called when output() is no longer empty.
  RelayLink(StoreServer& server, std::function<void()> has_output)
      : server_(server), has_output_(std::move(has_output)) {}
  RelayLink(const RelayLink&) = delete;
  RelayLink& operator=(const RelayLink&) = delete;
  ~RelayLink() override;  // closes its clients

  // Throws RelayError if the agent violates the protocol.
  void receive(std::string_view records);
  // The records to send; the caller takes them. Work for other clients can add to them too.
  std::string& output() { return output_; }

 private:
  struct Client {
    ClientId id = 0;
    std::size_t consumed = 0;  // bytes for which no credit was given yet
  };

  void open(RelayedClient number);
  void put(const RelayRecord& record);
  void replies(ClientId client, std::string_view bytes) override;
  void consumed(ClientId client, std::size_t bytes) override;
  void closed(ClientId client) override;

  StoreServer& server_;
  std::function<void()> has_output_;
  std::unordered_map<RelayedClient, Client> clients_;
  std::unordered_map<ClientId, RelayedClient> numbers_;
  std::string output_;
};

}  // namespace mgpu::rendezvous::store
