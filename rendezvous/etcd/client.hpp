#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <string_view>

#include <boost/asio/io_context.hpp>

#include "rendezvous/etcd/answers.hpp"
#include "rendezvous/etcd/boot_clock.hpp"
#include "rendezvous/etcd/call.hpp"
#include "rendezvous/etcd/members.hpp"
#include "rendezvous/etcd/requests.hpp"
#include "rendezvous/etcd/watch.hpp"

namespace mgpu::rendezvous::etcd {

// A client of etcd v3 through its JSON gateway, for one thread; nothing blocks. Any member will do
// for any call (see Call). Reads are linearizable. Every call ends by its limit.
class Client {
 public:
  using Milliseconds = std::chrono::milliseconds;

  template <class Answer>
  struct Outcome {
    Answer answer;               // of no use with a problem
    Problem problem;             // false when all went well
    BootClock::time_point sent;  // before the request that was answered left us
  };
  template <class Answer>
  using Done = std::function<void(const Outcome<Answer>&)>;

  // Throws std::runtime_error with one line when the settings cannot be used at all.
  Client(boost::asio::io_context& io, Access access);
  ~Client();  // no callback is called any more
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // A late repetition of a bare put would undo what came after it: guard what matters by a
  // transaction.
  void put(std::string_view key, std::string_view value, std::int64_t lease, Milliseconds limit,
           Done<PutAnswer> done);
  void get(std::string_view key, Milliseconds limit, Done<RangeAnswer> done);
  void range(std::string_view prefix, std::int64_t most, Milliseconds limit,
             Done<RangeAnswer> done);
  void transact(const Transaction& transaction, Milliseconds limit, Done<TransactionAnswer> done);

  // The caller chooses the lease's number, so that a repetition makes no second one; that it exists
  // already (code 9) then means that the first request was carried out.
  void grant(std::int64_t lease, std::chrono::seconds ttl, Milliseconds limit,
             Done<LeaseAnswer> done);
  // ttl 0 in the answer: there is no such lease any more.
  void keep_alive(std::int64_t lease, Milliseconds limit, Done<LeaseAnswer> done);
  void revoke(std::int64_t lease, Milliseconds limit, Done<PutAnswer> done);

  // Changes under a prefix from a revision on, until it is destroyed; not later than the client.
  std::unique_ptr<Watch> watch(std::string_view prefix, std::int64_t from_revision,
                               Watch::Listener listener);

  std::size_t current_member() const { return members_->current(); }
  static std::int64_t random_lease();  // a number that nobody else has chosen

 private:
  template <class Answer>
  void call(std::string path, std::string body, Milliseconds limit, Done<Answer> done);

  std::unique_ptr<Members> members_;
  std::list<std::weak_ptr<Call>> calls_;
};

}  // namespace mgpu::rendezvous::etcd
