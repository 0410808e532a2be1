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

// Resolves host names without blocking the event loop. A numeric address is returned at once. A
// name is resolved by getaddrinfo (hosts file, DNS, whatever the system is configured for) in a
// separate thread, one per name at a time, with all signals blocked. The thread shares only its
// result with us, and nothing waits for it: Asio's resolver would delay the exit of the program
// while a name server does not respond. Results are cached for 30 s.
class Resolver {
 public:
  using Addresses = std::vector<boost::asio::ip::address>;
  // Called with the addresses, or with the reason why there are none.
  using Done = std::function<void(const Addresses&, const std::string& problem)>;

  explicit Resolver(boost::asio::io_context& io);
  ~Resolver();  // no callback is called any more
  Resolver(const Resolver&) = delete;
  Resolver& operator=(const Resolver&) = delete;

  // Calls `done` exactly once, immediately or later.
  void resolve(const std::string& host, Done done);
  void forget(
      const std::string& host);  // drops the cached result, for example because no address answered

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
