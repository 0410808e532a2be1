#include "runtime/hub/running_download.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <fnmatch.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <utility>

#include "rendezvous/base/small_file.hpp"
#include "rendezvous/base/unique_fd.hpp"
#include "rendezvous/base/untrusted_json.hpp"
#include "rendezvous/processes/child_process.hpp"
#include "runtime/checkpoint/hub_cache.hpp"
#include "runtime/hub/partial_files.hpp"
#include "runtime/hub/started_program.hpp"

namespace mgpu::hub {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using rendezvous::UniqueFd;

constexpr std::size_t kKeptOutput = 64 << 10;
constexpr std::size_t kLongestListing = 64 << 20;
constexpr auto kLook = 500ms;  // between two looks at the cache

// While it exists, signals that would end this process are read from a descriptor instead.
class EndingSignals {
 public:
  EndingSignals() {
    ::sigemptyset(&signals_);
    for (const int signo : {SIGINT, SIGTERM, SIGHUP}) {
      struct sigaction action{};
      ::sigaction(signo, nullptr, &action);
      if (action.sa_handler == SIG_DFL) ::sigaddset(&signals_, signo);
    }
    ::pthread_sigmask(SIG_BLOCK, &signals_, &before_);
    fd_ = UniqueFd(::signalfd(-1, &signals_, SFD_CLOEXEC | SFD_NONBLOCK));
  }
  ~EndingSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  EndingSignals(const EndingSignals&) = delete;
  EndingSignals& operator=(const EndingSignals&) = delete;

  int fd() const { return fd_.get(); }
  int take() const {  // 0: none has come
    signalfd_siginfo got{};
    return ::read(fd_.get(), &got, sizeof got) == sizeof got ? static_cast<int>(got.ssi_signo) : 0;
  }
  // Does what the signal does by default.
  [[noreturn]] void end_by(int signo) const {
    ::raise(signo);
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    ::_exit(128 + signo);  // it was blocked before
  }

 private:
  sigset_t signals_{}, before_{};
  UniqueFd fd_;
};

// The listing of a repository's files that newer versions of hf keep in the cache: the bytes that
// are to be downloaded. 0: there is no listing (yet).
std::int64_t bytes_to_download(const Repository& repository) {
  if (repository.site != Site::huggingface) return 0;
  const fs::path folder = repository_folder(repository);
  auto commit = repository.revision;
  if (const auto ref = rendezvous::read_small_file((folder / "refs" / commit).string(), 1000);
      ref.complete())
    commit = ref.text.substr(0, ref.text.find_last_not_of(" \n") + 1);
  const auto listing = rendezvous::read_small_file((folder / "trees" / (commit + ".json")).string(),
                                                   kLongestListing);
  if (!listing.complete()) return 0;
  const auto json = rendezvous::parse_untrusted_json(listing.text);
  const auto files = json.is_object() ? json.find("files") : json.end();
  if (!json.is_object() || files == json.end() || !files->is_object()) return 0;
  std::int64_t bytes = 0;
  const auto wanted = patterns(repository.part);
  for (const auto& [name, file] : files->items()) {
    const auto matches = [&](const auto& pattern) {
      return ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
    };
    std::error_code ignored;
    if (std::ranges::none_of(wanted, matches) ||
        fs::exists(folder / "snapshots" / commit / name, ignored) || !file.is_object())
      continue;
    const auto size = file.find("size");
    if (size != file.end() && size->is_number_integer())
      bytes += size->template get<std::int64_t>();
  }
  return bytes;
}

class RunningDownload {
 public:
  RunningDownload(const Repository& repository, const Program& program,
                  const DownloadLimits& limits, const std::function<void(const std::string&)>& say)
      : repository_(repository), limits_(limits), say_(say) {
    auto started = start_program(program);
    child_ = std::move(started.child);
    from_ = std::move(started.output);
    ::fcntl(from_.get(), F_SETFL, O_NONBLOCK);
  }

  DownloadEnd run() {
    while (true) {
      std::array<pollfd, 3> waits{pollfd{from_.get(), POLLIN, 0}, pollfd{child_.pidfd(), POLLIN, 0},
                                  pollfd{signals_.fd(), POLLIN, 0}};
      ::poll(waits.data(), waits.size(), static_cast<int>(kLook.count()));
      read_output();
      if (const int signo = signals_.take(); signo != 0) {
        child_.kill();
        clean_up(false);
        signals_.end_by(signo);
      }
      if (child_.has_exited()) return end(DownloadEnd::Why::exited, *child_.reap());
      if (const auto why = limit_reached()) return end(*why, child_.kill().value_or(0));
    }
  }

 private:
  void read_output() {
    char bytes[4096];
    while (true) {
      const auto got = ::read(from_.get(), bytes, sizeof bytes);
      if (got == 0) from_.reset();  // poll() ignores it from now on
      if (got <= 0) return;
      output_.append(bytes, static_cast<std::size_t>(got));
      // hf prints only what does not work. ModelScope's programs have used several folders.
      if (repository_.site == Site::modelscope) last_new_ = Clock::now();
      if (output_.size() > 2 * kKeptOutput) output_.erase(0, output_.size() - kKeptOutput);
    }
  }

  std::optional<DownloadEnd::Why> limit_reached() {
    const auto now = Clock::now();
    if (limits_.deadline && now > *limits_.deadline) return DownloadEnd::Why::deadline;
    if (now < next_look_) return std::nullopt;
    next_look_ = now + kLook;
    const auto bytes = bytes_in(folder_) - before_;
    if (bytes > most_) {
      most_ = bytes;
      last_new_ = now;
    }
    if (now - last_new_ > limits_.idle) return DownloadEnd::Why::idle;
    if (needed_ == 0 && (needed_ = bytes_to_download(repository_)) > 0) {
      std::error_code unknown;
      const auto space = fs::space(folder_, unknown);
      available_ = unknown ? needed_ : static_cast<std::int64_t>(space.available) + bytes;
      if (available_ < needed_) return DownloadEnd::Why::no_space;
    }
    report(now);
    return std::nullopt;
  }

  void report(Clock::time_point now) {
    if (now < next_report_) return;
    const auto seconds = std::chrono::duration<double>(now - begin_).count();
    next_report_ = now + limits_.report;
    if (now - begin_ < limits_.report || most_ == 0) return;
    const auto rate = static_cast<double>(most_) / seconds;
    // Files that were complete before there was a listing are not in needed_.
    const auto done = needed_ > 0 ? std::min(most_, needed_) : most_;
    auto line = fmt::format("downloading {}: {}", repository_.name, shown_bytes(done));
    if (needed_ > 0) line += fmt::format(" of {}", shown_bytes(needed_));
    line += fmt::format(", {}/s", shown_bytes(static_cast<std::int64_t>(rate)));
    if (needed_ > most_ && rate > 0)
      line += fmt::format(", {:.0f} min left", static_cast<double>(needed_ - most_) / rate / 60);
    say_(line);
  }

  DownloadEnd end(DownloadEnd::Why why, int status) {
    read_output();
    if (why != DownloadEnd::Why::exited || status != 0)
      clean_up(why == DownloadEnd::Why::no_space ||
               output_.find("No space left on device") != output_.npos);
    return {why, status, std::move(output_), bytes_in(folder_) - before_, needed_, available_};
  }

  void clean_up(bool all) const { remove_partial_files(folder_, all); }

  const Repository& repository_;
  const DownloadLimits& limits_;
  const std::function<void(const std::string&)>& say_;
  EndingSignals signals_;
  rendezvous::ChildProcess child_;
  UniqueFd from_;
  std::string output_;
  const std::string folder_ = repository_folder(repository_);
  const std::int64_t before_ = bytes_in(folder_);
  const Clock::time_point begin_ = Clock::now();
  Clock::time_point next_look_ = begin_, next_report_ = begin_, last_new_ = begin_;
  std::int64_t most_ = 0, needed_ = 0, available_ = 0;
};

}  // namespace

std::string shown_bytes(std::int64_t bytes) {
  if (bytes >= 1'000'000'000) return fmt::format("{:.1f} GB", static_cast<double>(bytes) / 1e9);
  return fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6);
}

DownloadEnd run_download(const Repository& repository, const Program& program,
                         const DownloadLimits& limits,
                         const std::function<void(const std::string&)>& say) {
  remove_partial_files(repository_folder(repository), false);
  return RunningDownload(repository, program, limits, say).run();
}

}  // namespace mgpu::hub
