#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>

#include "rendezvous/tls/context.hpp"

namespace mgpu::rendezvous::tls {

// The peer's certificate was rejected, or the peer did not follow the protocol. The message is a
// phrase about the peer, such as "its certificate has expired". Another connection would fail too.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Our end of one TLS connection, without the socket: the owner sends the bytes of take_outgoing()
// to the peer and passes received bytes to receive(). The peer must present a certificate for
// `host`, a name or an address, that the context trusts.
class Session {
 public:
  static constexpr std::size_t kMaxPending = 1 << 20;  // that one call of receive() accepts

  // The context must outlive the session. Throws Error if no certificate can match this host.
  Session(const Context& context, const std::string& host);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // These throw Error; after that take_outgoing() may still return an alert for the peer.
  void send(std::string_view plain);            // buffered until the handshake is complete
  std::string receive(std::string_view bytes);  // returns the decrypted bytes

  std::string take_outgoing();
  bool established() const { return established_; }
  bool closed() const { return closed_; }  // the peer has closed the TLS session

 private:
  void continue_handshake();
  void write_pending();
  [[noreturn]] void fail();

  const Context& context_;
  std::string host_;
  void* session_ = nullptr;  // SSL; it owns the two BIOs
  void* incoming_ = nullptr;
  void* outgoing_ = nullptr;
  std::string pending_;
  bool established_ = false;
  bool closed_ = false;
};

}  // namespace mgpu::rendezvous::tls
