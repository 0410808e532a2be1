#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include <boost/asio/steady_timer.hpp>

#include "rendezvous/etcd/answers.hpp"
#include "rendezvous/etcd/boot_clock.hpp"
#include "rendezvous/etcd/exchange.hpp"
#include "rendezvous/etcd/members.hpp"

namespace mgpu::rendezvous::etcd {

// Why a call has no answer.
struct Problem {
  std::string text;  // empty: it has one
  int code = 0;      // gRPC's, when etcd itself refused: 5 not found, 9 precondition
  // To ask again without a change of our settings is in vain: user, password, rights.
  bool permanent = false;

  explicit operator bool() const { return !text.empty(); }
};

// One request to etcd, by whichever member answers it before its deadline. A member that does not
// answer, or not as etcd does, is left for the next. So a request may be carried out more than
// once, and late: whoever asks must be able to bear that.
class Call : public std::enable_shared_from_this<Call> {
 public:
  struct Request {
    std::string path;  // "/v3/kv/range"
    std::string body;
    std::chrono::milliseconds limit;
    // Reads an answer and tells the cluster it is of; false when it cannot be understood.
    std::function<bool(std::string_view body, std::uint64_t& cluster)> parse;
    // Called once; `sent` is when the attempt that was answered began.
    std::function<void(Problem, BootClock::time_point sent)> done;
  };

  Call(Members& members, Request request);

  void start();   // nothing of the question is called before this returns
  void cancel();  // nothing of it is called any more
  bool finished() const { return finished_; }

 private:
  void attempt();
  void sign_in();
  void send_request();
  void exchange(const std::string& path, const std::string& token, const std::string& body,
                std::function<void(Exchange::Result)> on_end);
  void on_signed_in(const Exchange::Result& result);
  void on_answer(const Exchange::Result& result);
  void sign_in_again(const std::string& why);
  void next_member(std::string why);
  void finish(Problem problem);

  Members& members_;
  Request request_;
  boost::asio::steady_timer deadline_;
  boost::asio::steady_timer pause_;
  std::shared_ptr<Exchange> exchange_;
  Failures failures_;
  std::size_t member_ = 0;
  std::size_t failed_in_a_row_ = 0;
  std::chrono::milliseconds next_pause_{50};
  int sign_ins_ = 0;
  BootClock::time_point sent_;
  bool finished_ = false;
};

}  // namespace mgpu::rendezvous::etcd
