#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "rendezvous/store/memory.hpp"
#include "rendezvous/store/wire.hpp"

namespace mgpu::rendezvous::store {

// What comes of a client's bytes: the replies to it, in order, and the other clients that wait
// no longer. Whoever owns the sockets reuses one of these for all clients.
struct Turn {
  std::string replies;
  Released released;

  void clear() {
    replies.clear();
    released.clear();
  }
};

// One client's side of the conversation, without its socket: bytes in, replies out.
// An idle session holds no buffer.
class Session {
 public:
  // A turn ends when its replies have grown to this; one reply may go beyond it.
  static constexpr std::size_t kTurnBytes = 256 << 10;

  explicit Session(ClientId id) : id_(id) {}

  // Takes bytes as they came and carries out the requests that are whole, up to the end of the
  // turn. False: the client has broken the rules, its connection must be closed; what the turn
  // holds is valid all the same.
  bool receive(std::string_view bytes, Memory& memory, Turn& turn);

  // Requests are left over from the last turn. When its replies are written, call receive with
  // nothing; give it no new bytes before, so that what it keeps has a limit.
  bool held() const { return held_; }

  bool validated() const { return scanner_.validated(); }

 private:
  bool take_up(std::string_view bytes, std::size_t& used, Memory& memory, Turn& turn);
  bool carry_out(const Request& request, Memory& memory, Turn& turn);
  bool carry_out_number(const Request& request, Memory& memory, Turn& turn);
  bool carry_out_queue(const Request& request, Memory& memory, Turn& turn);
  bool carry_out_keys(const Request& request, Memory& memory, Turn& turn);
  void answer_some(std::string_view fields, const Memory& memory, Turn& turn);
  void release(const Released& released, Turn& turn) const;

  RequestScanner scanner_;
  std::string kept_;          // the beginning of a request, or requests that are held
  std::size_t answered_ = 0;  // bytes of a held MULTI_GET's fields whose values are written
  ClientId id_;
  bool held_ = false;
};

}  // namespace mgpu::rendezvous::store
