#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/address.hpp>

namespace mgpu::rendezvous {

// Finds the addresses of hosts without ever holding up the loop: an address is its own answer, and
// a name is looked up by getaddrinfo (hosts file, DNS, what the system is configured for) in a
// thread of its own, one per name at a time, with all signals blocked. The thread shares nothing
// with us but its answer and is never waited for: Asio's resolver would hold up the end of the
// program while a name server is silent. Answers are kept for 30 s.
class Resolver {
 public:
  using Addresses = std::vector<boost::asio::ip::address>;
  // Addresses, or why there are none.
  using Done = std::function<void(const Addresses&, const std::string& problem)>;

  explicit Resolver(boost::asio::io_context& io);
  ~Resolver();  // nothing is called any more
  Resolver(const Resolver&) = delete;
  Resolver& operator=(const Resolver&) = delete;

  // Calls done once, at once or later.
  void resolve(const std::string& host, Done done);
  void forget(const std::string& host);  // what was found did not answer

 private:
  struct Lookup;
  struct CacheEntry {
    Addresses addresses;
    std::chrono::steady_clock::time_point until;
  };

  void finish(const std::string& host);

  boost::asio::io_context& io_;
  std::map<std::string, CacheEntry> cache_;
  std::map<std::string, std::unique_ptr<Lookup>> lookups_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace mgpu::rendezvous
