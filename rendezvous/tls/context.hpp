#pragma once

#include <stdexcept>
#include <string>

namespace mgpu::rendezvous::tls {

struct Files {
  std::string ca;           // PEM; empty: the system's trusted authorities
  std::string certificate;  // PEM, with its chain; empty: no client certificate
  std::string key;          // PEM; empty: it is in `certificate`
  // The setting that names `ca`, for messages.
  std::string ca_setting = "cacert";
};

// A file of Files that cannot be used. The message begins with the setting that names it:
// "cacert=/ca.pem: ...".
struct FileError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Trusted authorities and client certificate, shared by all TLS connections. TLS 1.2 or newer.
// Sessions of several threads may use one context.
class Context {
 public:
  // Throws a one-line FileError, or std::runtime_error if libssl.so.3 is missing.
  explicit Context(Files files);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  const Files& files() const { return files_; }
  void* handle() const { return context_; }

 private:
  Files files_;
  void* context_ = nullptr;  // SSL_CTX
};

}  // namespace mgpu::rendezvous::tls
