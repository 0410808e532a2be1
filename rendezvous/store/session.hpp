#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "rendezvous/store/memory.hpp"
#include "rendezvous/store/request_policy.hpp"
#include "rendezvous/store/wire.hpp"

namespace mgpu::rendezvous::store {

// The result of a client's requests: the replies to it, in order, and the other clients whose wait
// has ended. The owner of the sockets reuses one object for all clients.
struct SessionOutput {
  std::string replies;
  Released released;

  void clear() {
    replies.clear();
    released.clear();
  }
};

// The protocol state of one client, without its socket: bytes in, replies out. An idle session
// holds no buffer.
class Session {
 public:
  // receive() stops when the replies have reached this size; the last reply may exceed it.
  static constexpr std::size_t kMaxOutputBytes = 256 << 10;

  // `policy` must outlive the session; null: everything is permitted.
  explicit Session(ClientId id, const RequestPolicy* policy = nullptr) : id_(id), policy_(policy) {}

  // Parses received bytes, in pieces of any size, and executes complete requests until the output
  // is full. False: the client violated the protocol or the policy and its connection must be
  // closed; the output is valid nevertheless.
  bool receive(std::string_view bytes, Memory& memory, SessionOutput& output);

  // Whether requests are left because the output was full. Once the replies are written, call
  // receive() with no bytes. Pass no new bytes before that: it bounds the buffered bytes.
  bool has_pending() const { return has_pending_; }

  bool validated() const { return scanner_.validated(); }
  std::size_t buffered() const { return buffer_.size(); }  // bytes of incomplete requests

 private:
  bool process(std::string_view bytes, std::size_t& used, Memory& memory, SessionOutput& output);
  bool execute(const Request& request, Memory& memory, SessionOutput& output);
  bool execute_number(const Request& request, Memory& memory, SessionOutput& output);
  bool execute_queue(const Request& request, Memory& memory, SessionOutput& output);
  bool execute_keys(const Request& request, Memory& memory, SessionOutput& output);
  void reply_to_multi_get(std::string_view fields, const Memory& memory, SessionOutput& output);
  void release(const Released& released, SessionOutput& output) const;

  RequestScanner scanner_;
  std::string buffer_;                  // the start of a request, or pending requests
  std::size_t multi_get_position_ = 0;  // bytes of a pending MULTI_GET's fields that are answered
  ClientId id_;
  const RequestPolicy* policy_;
  bool has_pending_ = false;
};

}  // namespace mgpu::rendezvous::store
