#pragma once

#include <chrono>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>

#include "rendezvous/base/unique_fd.hpp"

namespace mgpu::rendezvous::store {

// The store could not be reached, did not reply, or closed the connection.
struct StoreError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A client's connection to a store: blocking, with deadlines. Every failure closes the connection
// and throws a StoreError that names the server and the call.
class Channel {
 public:
  using Deadline = std::chrono::steady_clock::time_point;

  // Connects; retries while nothing listens there or the host is unreachable.
  Channel(const std::string& host, int port, Deadline deadline);

  // Starts a call: sends and reads that follow belong to it and end by this deadline.
  void begin(const char* call, Deadline deadline);
  void send(std::string_view bytes);
  void read(char* to, std::size_t size);
  template <class Number>
  Number number() {
    Number value;
    read(reinterpret_cast<char*>(&value), sizeof value);
    return value;
  }
  std::string string();

  bool readable_by(Deadline deadline);  // false if nothing has arrived by then
  [[noreturn]] void fail(const std::string& what);

  const std::string& server() const { return server_; }  // host:port

 private:
  void wait_until(short events);

  UniqueFd socket_;
  std::string server_;
  const char* call_ = "connect";
  Deadline deadline_;
};

}  // namespace mgpu::rendezvous::store
