#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace mgpu::rendezvous::etcd {

struct TlsFiles {
  std::string ca;           // PEM; empty: whom the system trusts
  std::string certificate;  // PEM, with its chain; empty: we show none
  std::string key;          // PEM; empty: it is in `certificate`
};

// What all our TLS connections share: whom we trust and who we are. TLS 1.2 or newer.
class TlsContext {
 public:
  // Throws std::runtime_error with one line when libssl.so.3 is not there or a file is no good.
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

// Our end of one TLS connection, from bytes to bytes: the owner carries what take_outgoing() gives
// to the peer and what the peer sent to receive(). The peer must prove to be `host`, a name or an
// address, with a certificate that the context trusts.
class TlsSession {
 public:
  static constexpr std::size_t kMaxPending = 1 << 20;  // that receive() takes at once

  // The context must outlive the session.
  TlsSession(const TlsContext& context, const std::string& host);
  ~TlsSession();
  TlsSession(const TlsSession&) = delete;
  TlsSession& operator=(const TlsSession&) = delete;

  // These throw std::runtime_error with a few words about the peer, "its certificate has expired";
  // after that there may still be an alert for it in take_outgoing().
  void send(std::string_view plain);            // kept until hands are shaken
  std::string receive(std::string_view bytes);  // what the peer said in them

  std::string take_outgoing();
  bool established() const { return established_; }
  bool closed() const { return closed_; }  // the peer has said that nothing will follow

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
