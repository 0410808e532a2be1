#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <boost/asio/steady_timer.hpp>

#include "rendezvous/etcd/answers.hpp"
#include "rendezvous/etcd/members.hpp"
#include "rendezvous/http/exchange.hpp"

namespace mgpu::rendezvous::etcd {

// Reports changes under a prefix. When its connection ends, it continues with the next member from
// the last revision it has seen. A member that hangs cannot be distinguished from one without
// changes, so the owner must read the keys periodically and call reconnect() if the watch has
// missed a change.
class Watch {
 public:
  struct Listener {
    std::function<void(const std::vector<WatchEvent>&)> on_events;
    // Called once, when the next revisions are compacted or the stream cannot be parsed: read the
    // keys and start a new watch. The callback may destroy the watch.
    std::function<void(std::string why)> on_lost;
  };

  // The members must outlive the watch. Calls no callback before it returns.
  Watch(Members& members, std::string prefix, std::int64_t from_revision, Listener listener);
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  std::int64_t last_revision() const {
    return next_ - 1;
  }  // all changes up to this revision were reported
  std::size_t member() const { return member_; }
  void reconnect();  // to the current member

 private:
  void connect();
  void reconnect_later();
  void on_end(const http::Exchange::Result& result);
  void on_piece(std::string_view piece);
  bool read_line(std::string_view line);
  void report_lost(std::string why);

  Members& members_;
  std::string prefix_;
  std::int64_t next_;
  Listener listener_;
  boost::asio::steady_timer pause_;
  std::chrono::milliseconds next_pause_;
  std::shared_ptr<http::Exchange> exchange_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  std::string line_;
  std::size_t member_ = 0;
};

}  // namespace mgpu::rendezvous::etcd
