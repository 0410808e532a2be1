#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <string_view>

#include <boost/asio/io_context.hpp>

#include "rendezvous/base/boot_clock.hpp"
#include "rendezvous/etcd/answers.hpp"
#include "rendezvous/etcd/call.hpp"
#include "rendezvous/etcd/members.hpp"
#include "rendezvous/etcd/requests.hpp"
#include "rendezvous/etcd/watch.hpp"

namespace mgpu::rendezvous::etcd {

// A client of etcd v3, using its JSON gateway. For one thread; nothing blocks. Any member can
// answer any call (see Call). Reads are linearizable. Every call ends within its time limit.
class Client {
 public:
  using Milliseconds = std::chrono::milliseconds;

  template <class Answer>
  struct Outcome {
    Answer answer;               // undefined if there is a problem
    Problem problem;             // empty on success
    BootClock::time_point sent;  // just before the answered request was sent
  };
  template <class Answer>
  using Done = std::function<void(const Outcome<Answer>&)>;

  // Throws std::runtime_error with a one-line message if the settings are unusable.
  Client(boost::asio::io_context& io, Access access);
  ~Client();  // no callback is called any more
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // A put may be repeated late and then overwrite newer values: use a transaction for keys where
  // that matters.
  void put(std::string_view key, std::string_view value, std::int64_t lease, Milliseconds limit,
           Done<PutAnswer> done);
  void get(std::string_view key, Milliseconds limit, Done<RangeAnswer> done);
  void range(std::string_view prefix, std::int64_t most, Milliseconds limit,
             Done<RangeAnswer> done);
  void transact(const Transaction& transaction, Milliseconds limit, Done<TransactionAnswer> done);

  // The caller chooses the lease's number, so that a repetition creates no second lease. The error
  // "already exists" (Problem::kAlreadyExists) then means that the first request was executed.
  void grant(std::int64_t lease, std::chrono::seconds ttl, Milliseconds limit,
             Done<LeaseAnswer> done);
  // ttl 0 in the response: the lease no longer exists.
  void keep_alive(std::int64_t lease, Milliseconds limit, Done<LeaseAnswer> done);
  void revoke(std::int64_t lease, Milliseconds limit, Done<PutAnswer> done);

  // Reports changes under a prefix, starting at a revision. Destroy the watch before the client.
  std::unique_ptr<Watch> watch(std::string_view prefix, std::int64_t from_revision,
                               Watch::Listener listener);

  std::size_t current_member() const { return members_->current(); }
  static std::int64_t random_lease();  // practically unique

 private:
  template <class Answer>
  void call(std::string path, std::string body, Milliseconds limit, Done<Answer> done);

  std::unique_ptr<Members> members_;
  std::list<std::weak_ptr<Call>> calls_;
};

}  // namespace mgpu::rendezvous::etcd
