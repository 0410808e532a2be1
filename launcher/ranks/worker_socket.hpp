#pragma once

#include <sys/types.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/lifecycle/collective_state.hpp"
#include "launcher/lifecycle/hang_watch.hpp"
#include "rendezvous/base/unique_fd.hpp"

namespace mgpu::launcher {

// The socket through which any program of the job can talk to its launcher: lines of JSON in both
// directions (docs/launcher.md, "Worker socket"). A rank that requests it learns that it has to
// abort because another rank has failed; a signal would mean "stop and save".
//
// Its address is abstract: it is not a file, so nothing is left behind, and it ends with this
// process. Only processes of our user (and root) may connect.
class WorkerSocket {
 public:
  // `note` gets lines for the user, about senders that break the rules.
  WorkerSocket(boost::asio::io_context& io, std::function<void(std::string_view)> note);
  WorkerSocket(const WorkerSocket&) = delete;
  WorkerSocket& operator=(const WorkerSocket&) = delete;

  // `heard` gets what ranks report about their progress; `silent` a rank that reported before and
  // has closed its connection.
  void on_heartbeat(std::function<void(const Heartbeat&)> heard, std::function<void(int)> silent);

  // "@NAME", for the environment of the ranks. Empty if no socket could be made.
  const std::string& address() const { return address_; }
  // Why, then.
  const std::string& problem() const { return problem_; }

  // From now on these ranks may send. Connections of earlier attempts are closed.
  void begin_attempt(int base_rank, int ranks);
  // The last step that a rank reported in this attempt; -1: none did. Counts what ranks that have
  // ended sent before.
  std::int64_t last_step();
  // Reads what processes have sent and the event loop has not read yet.
  void take_waiting();
  // Sends a dump request to all processes that answer it; false: there are none.
  bool request_dumps();
  // What a process of the rank has answered since then.
  std::optional<CollectiveState> collective_of(int rank) const;
  // Sends the rank an abort request. False if none of its processes accepts one.
  bool abort(int rank);
  // Whether every other rank of this node has said that it can go on with a new process in the
  // place of this one.
  bool can_replace(int lost);
  // `all_ready` is called when all ranks of this node have said this.
  void on_ready(std::function<void()> all_ready) { ready_ = std::move(all_ready); }
  // Tells them that a new process takes this place. They have to say again that they can.
  void replace(int lost, int number);

 private:
  struct Peer {
    explicit Peer(boost::asio::posix::stream_descriptor end) : socket(std::move(end)) {}
    boost::asio::posix::stream_descriptor socket;
    pid_t pid = 0;
    std::string pending;  // an incomplete line
    std::optional<int> rank = {};
    std::set<int> reported = {};  // ranks whose progress it has reported
    bool aborts = false;
    bool dumps = false;     // answers in which collective it is
    bool replaces = false;  // can go on with a new process in the place of a lost rank
    bool lost = false;      // of a rank that was replaced; nothing that it sends counts
  };
  using Number = std::size_t;

  void accept();
  bool accept_waiting();
  void admit(rendezvous::UniqueFd fd);
  void await(Number number);
  bool read(Peer& peer);
  std::map<Number, Peer>::iterator close(std::map<Number, Peer>::iterator peer);
  bool take_lines(Peer& peer);
  // Returns what is wrong with the line, or nothing.
  std::string take(Peer& peer, std::string_view line);
  void complain(std::string_view line);
  // Ranks that can go on with a new process in the place of a lost one, apart from `except`.
  int ready_ranks(std::optional<int> except = {}) const;

  boost::asio::io_context& io_;
  std::function<void(std::string_view)> note_;
  std::function<void(const Heartbeat&)> heard_ = [](const Heartbeat&) {};
  std::function<void(int)> silent_ = [](int) {};
  std::function<void()> ready_;
  std::string address_, problem_;
  boost::asio::posix::stream_descriptor listener_;
  std::map<Number, Peer> peers_;
  std::map<int, CollectiveState> collectives_;  // by rank
  Number next_ = 0;
  int base_rank_ = 0, ranks_ = 0;
  std::int64_t last_step_ = -1;
  bool accepting_ = false;
  bool complained_ = false;  // in this attempt
};

}  // namespace mgpu::launcher
