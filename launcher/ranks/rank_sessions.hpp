#pragma once

#include <sys/types.h>

#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include "launcher/lifecycle/signal.hpp"

namespace mgpu::launcher {

using BootTicks = std::uint64_t;  // the kernel's clock ticks since the machine started

BootTicks boot_ticks_now();

// A process as /proc/PID/stat shows it. Its pid and start time together identify it.
struct ProcessEntry {
  pid_t pid = 0;
  pid_t parent = 0;
  pid_t session = 0;
  BootTicks started = 0;
  bool zombie = false;  // no thread of it runs any more

  friend bool operator==(const ProcessEntry&, const ProcessEntry&) = default;
};

// From the text of /proc/PID/stat; pure.
std::optional<ProcessEntry> parse_process_stat(std::string_view text);

// All processes that we can see, without zombies.
std::vector<ProcessEntry> running_processes();

// The session that a rank leads, and so the processes that the rank started, unless they left it.
struct RankSession {
  static constexpr BootTicks kStillLed = std::numeric_limits<BootTicks>::max();

  pid_t leader = 0;  // 0: none
  // The last time at which the number certainly belonged to this session. A process that started
  // later may be in another session, whose leader got the number of ours when that was gone.
  BootTicks until = kStillLed;

  bool has(const ProcessEntry& process) const {
    return leader != 0 && process.session == leader && process.started <= until;
  }
  friend bool operator==(const RankSession&, const RankSession&) = default;
};

// The members of the sessions, the processes in `known`, and all descendants of these; pure.
std::vector<ProcessEntry> members_and_descendants(const std::vector<ProcessEntry>& all,
                                                  const std::vector<RankSession>& sessions,
                                                  const std::set<pid_t>& known);

// Sends the signal if the pid still belongs to this process. Returns whether it was sent.
bool signal_process(const ProcessEntry& process, Signal signal);

// The sessions of the ranks of this node, in memory that a forked child shares.
class RankSessions {
 public:
  explicit RankSessions(int ranks);
  RankSessions(const RankSessions&) = delete;
  RankSessions& operator=(const RankSessions&) = delete;
  ~RankSessions();

  // A rank has started and leads a session; its previous session is forgotten.
  void started(int local_rank, pid_t leader);
  // The rank was reaped just now. From now on its number may be given to another process, unless
  // the session has other members.
  void reaped(int local_rank);

  // May be called in a child that was forked later.
  std::vector<RankSession> all() const;

 private:
  struct Slot;
  int ranks_;
  Slot* slots_;
};

}  // namespace mgpu::launcher
