#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "rendezvous/store/memory.hpp"
#include "rendezvous/store/wire.hpp"

namespace mgpu::rendezvous::store {

// What comes of a client's bytes: the replies to it, in order, and the other clients that wait
// no longer. Whoever owns the sockets reuses one of these for all clients.
struct SessionOutput {
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
  static constexpr std::size_t kMaxOutputBytes = 256 << 10;

  explicit Session(ClientId id) : id_(id) {}

  // Takes bytes as they came and carries out the requests that are whole, up to the end of the
  // turn. False: the client has broken the rules, its connection must be closed; what the turn
  // holds is valid all the same.
  bool receive(std::string_view bytes, Memory& memory, SessionOutput& output);

  // Requests are left over from the last turn. When its replies are written, call receive with
  // nothing; give it no new bytes before, so that what it keeps has a limit.
  bool has_pending() const { return has_pending_; }

  bool validated() const { return scanner_.validated(); }

 private:
  bool process(std::string_view bytes, std::size_t& used, Memory& memory, SessionOutput& output);
  bool execute(const Request& request, Memory& memory, SessionOutput& output);
  bool execute_number(const Request& request, Memory& memory, SessionOutput& output);
  bool execute_queue(const Request& request, Memory& memory, SessionOutput& output);
  bool execute_keys(const Request& request, Memory& memory, SessionOutput& output);
  void reply_to_multi_get(std::string_view fields, const Memory& memory, SessionOutput& output);
  void release(const Released& released, SessionOutput& output) const;

  RequestScanner scanner_;
  std::string buffer_;  // the beginning of a request, or requests that are held
  std::size_t multi_get_position_ =
      0;  // bytes of a held MULTI_GET's fields whose values are written
  ClientId id_;
  bool has_pending_ = false;
};

}  // namespace mgpu::rendezvous::store
