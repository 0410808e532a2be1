#include "rendezvous/etcd/client.hpp"

#include <sys/random.h>

#include <utility>

#include "rendezvous/base/errors.hpp"

namespace mgpu::rendezvous::etcd {

Client::Client(boost::asio::io_context& io, Access access)
    : members_(std::make_unique<Members>(io, std::move(access))) {}

Client::~Client() {
  for (const auto& weak : calls_)
    if (const auto call = weak.lock()) call->cancel();
}

template <class Answer>
void Client::call(std::string path, std::string body, Milliseconds limit, Done<Answer> done) {
  const auto answer = std::make_shared<Answer>();
  auto parse = [answer](std::string_view text, std::uint64_t& cluster) {
    auto parsed = Answer::parse(text);
    if (!parsed) return false;
    *answer = std::move(*parsed);
    cluster = answer->header.cluster;
    return true;
  };
  auto finished = [answer, done = std::move(done)](Problem problem, BootClock::time_point sent) {
    done({std::move(*answer), std::move(problem), sent});
  };
  const auto started =
      std::make_shared<Call>(*members_, Call::Request{.path = std::move(path),
                                                      .body = std::move(body),
                                                      .limit = limit,
                                                      .parse = std::move(parse),
                                                      .done = std::move(finished)});
  std::erase_if(calls_, [](const auto& weak) {
    const auto call = weak.lock();
    return !call || call->finished();
  });
  calls_.push_back(started);
  started->start();
}

void Client::put(std::string_view key, std::string_view value, std::int64_t lease,
                 Milliseconds limit, Done<PutAnswer> done) {
  call<PutAnswer>("/v3/kv/put", put_request(key, value, lease), limit, std::move(done));
}

void Client::get(std::string_view key, Milliseconds limit, Done<RangeAnswer> done) {
  call<RangeAnswer>("/v3/kv/range", range_request(key, "", 1), limit, std::move(done));
}

void Client::range(std::string_view prefix, std::int64_t most, Milliseconds limit,
                   Done<RangeAnswer> done) {
  call<RangeAnswer>("/v3/kv/range", range_request(prefix, prefix_end(prefix), most), limit,
                    std::move(done));
}

void Client::transact(const Transaction& transaction, Milliseconds limit,
                      Done<TransactionAnswer> done) {
  call<TransactionAnswer>("/v3/kv/txn", transaction_request(transaction), limit, std::move(done));
}

void Client::grant(std::int64_t lease, std::chrono::seconds ttl, Milliseconds limit,
                   Done<LeaseAnswer> done) {
  call<LeaseAnswer>("/v3/lease/grant", grant_request(lease, ttl.count()), limit, std::move(done));
}

void Client::keep_alive(std::int64_t lease, Milliseconds limit, Done<LeaseAnswer> done) {
  call<LeaseAnswer>("/v3/lease/keepalive", lease_request(lease), limit, std::move(done));
}

void Client::revoke(std::int64_t lease, Milliseconds limit, Done<PutAnswer> done) {
  call<PutAnswer>("/v3/lease/revoke", lease_request(lease), limit, std::move(done));
}

std::unique_ptr<Watch> Client::watch(std::string_view prefix, std::int64_t from_revision,
                                     Watch::Listener listener) {
  return std::make_unique<Watch>(*members_, std::string(prefix), from_revision,
                                 std::move(listener));
}

std::int64_t Client::random_lease() {
  std::int64_t lease = 0;
  if (::getrandom(&lease, sizeof lease, 0) != sizeof lease) throw_errno("cannot get random bytes");
  return (lease & INT64_MAX) | 1;
}

}  // namespace mgpu::rendezvous::etcd
