#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>

namespace mgpu::rendezvous::etcd {

struct TlsFiles {
  std::string ca;           // PEM; empty: the system's trusted authorities
  std::string certificate;  // PEM, with its chain; empty: no client certificate
  std::string key;          // PEM; empty: it is in `certificate`
};

// A file of TlsFiles that cannot be used. The message begins with the setting of --rdzv-conf that
// names it: "cacert=/ca.pem: ...".
struct TlsFileError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Trusted authorities and client certificate, shared by all TLS connections. TLS 1.2 or newer.
class TlsContext {
 public:
  // Throws a one-line TlsFileError, or std::runtime_error if libssl.so.3 is missing.
  explicit TlsContext(TlsFiles files);
  ~TlsContext();
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;

  const TlsFiles& files() const { return files_; }
  void* handle() const { return context_; }

 private:
  TlsFiles files_;
  void* context_ = nullptr;  // SSL_CTX
};

// Our end of one TLS connection, without the socket: the owner sends the bytes of take_outgoing()
// to the peer and passes received bytes to receive(). The peer must present a certificate for
// `host`, a name or an address, that the context trusts.
class TlsSession {
 public:
  static constexpr std::size_t kMaxPending = 1 << 20;  // that one call of receive() accepts

  // The context must outlive the session.
  TlsSession(const TlsContext& context, const std::string& host);
  ~TlsSession();
  TlsSession(const TlsSession&) = delete;
  TlsSession& operator=(const TlsSession&) = delete;

  // These throw std::runtime_error with a phrase about the peer, such as "its certificate has
  // expired"; after that take_outgoing() may still return an alert for the peer.
  void send(std::string_view plain);            // buffered until the handshake is complete
  std::string receive(std::string_view bytes);  // returns the decrypted bytes

  std::string take_outgoing();
  bool established() const { return established_; }
  bool closed() const { return closed_; }  // the peer has closed the TLS session

 private:
  void continue_handshake();
  void write_pending();
  [[noreturn]] void fail();

  const TlsContext& context_;
  std::string host_;
  void* session_ = nullptr;  // SSL; it owns the two BIOs
  void* incoming_ = nullptr;
  void* outgoing_ = nullptr;
  std::string pending_;
  bool established_ = false;
  bool closed_ = false;
};

}  // namespace mgpu::rendezvous::etcd
