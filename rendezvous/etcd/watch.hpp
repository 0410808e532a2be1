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
#include "rendezvous/etcd/exchange.hpp"
#include "rendezvous/etcd/members.hpp"

namespace mgpu::rendezvous::etcd {

// Follows the changes under a prefix. When its connection ends it goes on from the last revision
// that it has seen, with the next member. A member that falls silent without closing the connection
// cannot be told from one that has nothing to say: the owner reads now and then, and says move_on()
// when the watch has missed something.
class Watch {
 public:
  struct Listener {
    std::function<void(const std::vector<WatchEvent>&)> on_events;
    // The revisions to go on from are no longer there (compacted), or what comes cannot be read:
    // read the keys and begin a new watch. Called once; the watch may be destroyed in it.
    std::function<void(std::string why)> on_lost;
  };

  // The members must outlive the watch. Nothing of the listener is called before this returns.
  Watch(Members& members, std::string prefix, std::int64_t from_revision, Listener listener);
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  std::int64_t last_revision() const {
    return next_ - 1;
  }  // all changes up to this revision were told
  std::size_t member() const { return member_; }
  void reconnect();  // to the member that is asked now

 private:
  void connect();
  void reconnect_later();
  void on_end(const Exchange::Result& result);
  void on_piece(std::string_view piece);
  bool read_line(std::string_view line);
  void report_lost(std::string why);

  Members& members_;
  std::string prefix_;
  std::int64_t next_;
  Listener listener_;
  boost::asio::steady_timer pause_;
  std::chrono::milliseconds next_pause_;
  std::shared_ptr<Exchange> exchange_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  std::string line_;
  std::size_t member_ = 0;
};

}  // namespace mgpu::rendezvous::etcd
