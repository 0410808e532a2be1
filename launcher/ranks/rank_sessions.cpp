#include "launcher/ranks/rank_sessions.hpp"

#include <dirent.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <ctime>
#include <memory>
#include <new>

#include <fmt/format.h>

#include "rendezvous/base/errors.hpp"
#include "rendezvous/base/small_file.hpp"
#include "rendezvous/base/unique_fd.hpp"

namespace mgpu::launcher {
namespace {

template <class Number>
std::optional<Number> whole_number(std::string_view text) {
  Number number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::optional<ProcessEntry> look_at(pid_t pid) {
  const auto stat = rendezvous::read_kernel_file(fmt::format("/proc/{}/stat", pid));
  return stat ? parse_process_stat(*stat) : std::nullopt;
}

}  // namespace

BootTicks boot_ticks_now() {
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  const auto a_second = static_cast<BootTicks>(::sysconf(_SC_CLK_TCK));
  return static_cast<BootTicks>(now.tv_sec) * a_second +
         static_cast<BootTicks>(now.tv_nsec) * a_second / 1'000'000'000;
}

// "PID (name) STATE PARENT GROUP SESSION ...": the name may contain spaces and parentheses.
std::optional<ProcessEntry> parse_process_stat(std::string_view text) {
  constexpr size_t kState = 0, kParent = 1, kSession = 3, kThreads = 17, kStarted = 19;
  const size_t name_end = text.rfind(')');
  if (name_end == std::string_view::npos || name_end + 2 > text.size()) return std::nullopt;
  const auto pid = whole_number<pid_t>(text.substr(0, text.find(' ')));
  std::array<std::string_view, kStarted + 1> fields;
  std::string_view rest = text.substr(name_end + 2);
  for (auto& field : fields) {
    const size_t end = std::min(rest.find(' '), rest.size());
    field = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  const auto parent = whole_number<pid_t>(fields[kParent]);
  const auto session = whole_number<pid_t>(fields[kSession]);
  const auto threads = whole_number<long>(fields[kThreads]);
  const auto started = whole_number<BootTicks>(fields[kStarted]);
  if (!pid || !parent || !session || !threads || !started) return std::nullopt;
  // A process whose first thread has ended looks like a zombie although others run.
  const bool ended = fields[kState] == "Z" || fields[kState] == "X";
  return ProcessEntry{*pid, *parent, *session, *started, ended && *threads <= 1};
}

std::vector<ProcessEntry> running_processes() {
  std::vector<ProcessEntry> running;
  std::unique_ptr<DIR, int (*)(DIR*)> proc(::opendir("/proc"), ::closedir);
  if (!proc) return running;
  while (const dirent* entry = ::readdir(proc.get())) {
    const auto pid = whole_number<pid_t>(entry->d_name);
    if (!pid) continue;
    const auto process = look_at(*pid);
    if (process && !process->zombie) running.push_back(*process);
  }
  return running;
}

std::vector<ProcessEntry> members_and_descendants(const std::vector<ProcessEntry>& all,
                                                  const std::vector<RankSession>& sessions,
                                                  const std::set<pid_t>& known) {
  std::set<pid_t> chosen;
  for (const auto& process : all)
    if (known.contains(process.pid) ||
        std::ranges::any_of(sessions, [&](const auto& session) { return session.has(process); }))
      chosen.insert(process.pid);
  for (size_t before = 0; before != chosen.size();) {
    before = chosen.size();
    for (const auto& process : all)
      if (chosen.contains(process.parent)) chosen.insert(process.pid);
  }
  std::vector<ProcessEntry> found;
  std::ranges::copy_if(all, std::back_inserter(found),
                       [&](const auto& process) { return chosen.contains(process.pid); });
  return found;
}

bool signal_process(const ProcessEntry& process, Signal signal) {
  const rendezvous::UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, process.pid, 0)));
  if (!pidfd) return false;
  const auto now = look_at(process.pid);
  if (!now || now->started != process.started) return false;
  return ::syscall(SYS_pidfd_send_signal, pidfd.get(), signal.number(), nullptr, 0) == 0;
}

struct RankSessions::Slot {
  std::atomic<pid_t> leader = 0;
  std::atomic<BootTicks> until = RankSession::kStillLed;
};

RankSessions::RankSessions(int ranks) : ranks_(ranks) {
  void* const memory = ::mmap(nullptr, static_cast<size_t>(ranks) * sizeof(Slot),
                              PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) rendezvous::throw_errno("cannot share memory with the guard");
  slots_ = static_cast<Slot*>(memory);
  std::uninitialized_default_construct_n(slots_, ranks);
}

RankSessions::~RankSessions() {
  ::munmap(slots_, static_cast<size_t>(ranks_) * sizeof(Slot));
}

void RankSessions::started(int local_rank, pid_t leader) {
  slots_[local_rank].leader = 0;  // never the new leader with the old time
  slots_[local_rank].until = RankSession::kStillLed;
  slots_[local_rank].leader = leader;
}

void RankSessions::reaped(int local_rank) {
  slots_[local_rank].until = boot_ticks_now();
}

std::vector<RankSession> RankSessions::all() const {
  std::vector<RankSession> sessions;
  for (int rank = 0; rank < ranks_; ++rank)
    sessions.push_back({slots_[rank].leader, slots_[rank].until});
  return sessions;
}

}  // namespace mgpu::launcher
