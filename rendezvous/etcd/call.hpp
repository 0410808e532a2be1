#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include <boost/asio/steady_timer.hpp>

#include "rendezvous/base/boot_clock.hpp"
#include "rendezvous/etcd/answers.hpp"
#include "rendezvous/etcd/members.hpp"
#include "rendezvous/http/exchange.hpp"

namespace mgpu::rendezvous::etcd {

// Why a call failed.
struct Problem {
  // gRPC's codes: there is no such lease; a grant's "failed precondition".
  static constexpr int kNotFound = 5, kAlreadyExists = 9;

  std::string text;  // empty: it did not fail
  int code = 0;      // gRPC's, if etcd rejected the request
  // A retry fails until the settings change: user, password or permissions are wrong.
  bool permanent = false;

  explicit operator bool() const { return !text.empty(); }
};

// One request to etcd, answered by any member before its deadline. If a member does not answer, or
// not like etcd, the next one is tried. A request may therefore be executed more than once, and
// late: it must be safe to repeat.
class Call : public std::enable_shared_from_this<Call> {
 public:
  struct Request {
    std::string path;  // "/v3/kv/range"
    std::string body;
    std::chrono::milliseconds limit;
    // Parses a response and sets the id of its cluster; false if it cannot be parsed.
    std::function<bool(std::string_view body, std::uint64_t& cluster)> parse;
    // Called once; `sent` is the start of the attempt that was answered.
    std::function<void(Problem, BootClock::time_point sent)> done;
  };

  Call(Members& members, Request request);

  void start();   // calls no callback before it returns
  void cancel();  // calls no callback any more
  bool finished() const { return finished_; }

 private:
  void attempt();
  void sign_in();
  void send_request();
  void exchange(const std::string& path, const std::string& token, const std::string& body,
                std::function<void(http::Exchange::Result)> on_end);
  void on_signed_in(const http::Exchange::Result& result);
  void on_answer(const http::Exchange::Result& result);
  void sign_in_again(const std::string& why);
  void next_member(std::string why);
  void finish(Problem problem);

  Members& members_;
  Request request_;
  boost::asio::steady_timer deadline_;
  boost::asio::steady_timer pause_;
  std::shared_ptr<http::Exchange> exchange_;
  Failures failures_;
  std::size_t member_ = 0;
  std::size_t failed_in_a_row_ = 0;
  std::chrono::milliseconds next_pause_{50};
  int sign_ins_ = 0;
  BootClock::time_point sent_;
  bool finished_ = false;
};

}  // namespace mgpu::rendezvous::etcd
