#include "rendezvous/resolver.hpp"

#include <fcntl.h>
#include <netdb.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <utility>

#include <boost/asio/posix/stream_descriptor.hpp>

#include "rendezvous/base/background_thread.hpp"
#include "rendezvous/base/errors.hpp"
#include "rendezvous/base/unique_fd.hpp"

namespace mgpu::rendezvous {

// Shared by a lookup's thread and the event loop; the last one frees it.
struct LookupAnswer {
  UniqueFd ready;
  std::atomic<bool> done = false;  // once true, only the event loop accesses the rest
  Resolver::Addresses addresses;
  std::string problem;
};

namespace {

namespace asio = boost::asio;
using namespace std::chrono_literals;

constexpr auto kCacheLifetime = 30s;
constexpr std::size_t kMaxAddresses = 16;

asio::ip::address address_of(const sockaddr* from) {
  if (from->sa_family == AF_INET) {
    sockaddr_in v4{};
    std::memcpy(&v4, from, sizeof v4);
    return asio::ip::address_v4(ntohl(v4.sin_addr.s_addr));
  }
  sockaddr_in6 v6{};
  std::memcpy(&v6, from, sizeof v6);
  asio::ip::address_v6::bytes_type bytes;
  std::memcpy(bytes.data(), &v6.sin6_addr, bytes.size());
  return asio::ip::address_v6(bytes, v6.sin6_scope_id);
}

void look_up(const std::string& host, LookupAnswer& answer) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int code = ::getaddrinfo(host.c_str(), nullptr, &hints, &list);
  if (code != 0) {
    answer.problem = code == EAI_SYSTEM ? error_text(errno) : ::gai_strerror(code);
    return;
  }
  for (const addrinfo* entry = list; entry; entry = entry->ai_next) {
    if (entry->ai_family != AF_INET && entry->ai_family != AF_INET6) continue;
    const auto address = address_of(entry->ai_addr);
    auto& found = answer.addresses;
    if (found.size() < kMaxAddresses && std::ranges::find(found, address) == found.end())
      found.push_back(address);
  }
  ::freeaddrinfo(list);
  if (answer.addresses.empty()) answer.problem = "the name has no address";
}

}  // namespace

struct Resolver::Lookup {
  Lookup(asio::io_context& io, std::shared_ptr<LookupAnswer> shared, int fd)
      : answer(std::move(shared)), ready(io, fd) {}

  std::shared_ptr<LookupAnswer> answer;
  asio::posix::stream_descriptor ready;
  std::vector<Done> waiting;
};

Resolver::Resolver(asio::io_context& io) : io_(io) {}

Resolver::~Resolver() = default;

void Resolver::resolve(const std::string& host, Done done) {
  boost::system::error_code no_address;
  if (const auto address = asio::ip::make_address(host, no_address); !no_address)
    return done({address}, "");
  if (const auto known = cache_.find(host); known != cache_.end()) {
    if (std::chrono::steady_clock::now() < known->second.until)
      return done(Addresses(known->second.addresses), "");
    cache_.erase(known);
  }
  auto& running = lookups_[host];
  if (!running) {
    try {
      auto answer = std::make_shared<LookupAnswer>();
      answer->ready.reset(::eventfd(0, EFD_CLOEXEC));
      UniqueFd ours(::fcntl(answer->ready.get(), F_DUPFD_CLOEXEC, 0));
      if (!ours) throw_errno("cannot create an eventfd");
      running = std::make_unique<Lookup>(io_, answer, ours.get());
      ours.release();
      run_in_background([host, answer = std::move(answer)] {
        look_up(host, *answer);
        answer->done.store(true, std::memory_order_release);
        const std::uint64_t one = 1;
        [[maybe_unused]] const auto written = ::write(answer->ready.get(), &one, sizeof one);
      });
    } catch (const std::exception& error) {
      lookups_.erase(host);
      return done({}, error.what());
    }
    running->ready.async_wait(asio::posix::stream_descriptor::wait_read,
                              [this, host, alive = std::weak_ptr(alive_)](const auto& error) {
                                if (!error && !alive.expired()) finish(host);
                              });
  }
  running->waiting.push_back(std::move(done));
}

void Resolver::finish(const std::string& host) {
  const auto entry = lookups_.extract(host);
  Lookup& running = *entry.mapped();
  if (!running.answer->done.load(std::memory_order_acquire)) return;
  const LookupAnswer& answer = *running.answer;
  if (answer.problem.empty())
    cache_[host] = {answer.addresses, std::chrono::steady_clock::now() + kCacheLifetime};
  for (const auto& done : running.waiting) done(answer.addresses, answer.problem);
}

void Resolver::forget(const std::string& host) {
  cache_.erase(host);
}

}  // namespace mgpu::rendezvous
