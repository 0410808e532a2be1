// Three clients of one store send what the fuzzer chooses, split where it chooses. The input is a
// list of pieces: a byte that selects the client (low 2 bits; 3: it disconnects and reconnects)
// and the number of bytes it sends (the other 6 bits), then these bytes.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "rendezvous/store/session.hpp"

using namespace mgpu::rendezvous::store;

namespace {

void require(bool what) {
  if (!what) std::abort();
}

class Room {
 public:
  Room() {
    for (ClientId id = 0; id < 3; ++id) clients_[id].emplace(id);
  }

  void leave(ClientId id) {
    memory_.stop_waiting(id);
    clients_[id].emplace(id);
  }

  void end() {
    for (ClientId id = 0; id < 3; ++id) leave(id);
    require(memory_.waiting() == 0);
  }

  void say(ClientId id, std::string_view bytes) {
    Session& session = *clients_[id];
    do {
      turn_.clear();
      const bool good = session.receive(bytes, memory_, turn_);
      for (const ClientId other : turn_.released) require(other != id && other >= 0 && other < 3);
      if (!session.validated()) require(turn_.replies.empty());
      if (!good) return leave(id);
      bytes = {};
    } while (session.held());
    require(memory_.waiting() <= clients_.size());
  }

 private:
  Memory memory_;
  Turn turn_;
  std::array<std::optional<Session>, 3> clients_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* input, std::size_t size) {
  std::string_view rest(reinterpret_cast<const char*>(input), size);
  Room room;
  while (!rest.empty()) {
    const auto head = static_cast<std::uint8_t>(rest[0]);
    rest.remove_prefix(1);
    const ClientId id = head & 3;
    const std::size_t length = std::min<std::size_t>(head >> 2, rest.size());
    if (id == 3) {
      room.leave(static_cast<ClientId>(length % 3));
      continue;
    }
    room.say(id, rest.substr(0, length));
    rest.remove_prefix(length);
  }
  room.end();
  return 0;
}
