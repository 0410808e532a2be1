#include "launcher/event_loop.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <map>

#include <fmt/format.h>

#include "launcher/process_tree.hpp"
#include "rendezvous/base/errors.hpp"

extern char** environ;

namespace mgpu::launcher {
namespace {

constexpr auto kUnkillable = std::chrono::seconds(10);

// Memory that a child can still write into when it could not be exec'ed.
volatile int* shared_ints(size_t count) {
  void* memory = ::mmap(nullptr, count * sizeof(int), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) rendezvous::throw_errno("cannot share memory with the ranks");
  return static_cast<volatile int*>(memory);
}

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "localhost";
}

std::string get_env(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

}  // namespace

EventLoop::EventLoop(const Options& options, JobPlan plan, const Inherited& inherited, char** argv)
    : options_(options),
      plan_(std::move(plan)),
      inherited_(inherited),
      cookie_(make_cookie()),
      leftovers_(cookie_, [this](pid_t pid) { return is_known_child(pid); }),
      memory_({}, {}),
      logs_(options.log_dir, options.rdzv_id),
      output_(io_, options, plan_.placement.nproc),
      meeting_(io_, options),
      supervisor_(plan_.placement.nproc),
      signals_(io_),
      grace_(io_),
      delay_(io_),
      unkillable_(io_),
      job_began_(Clock::now()) {
  // Orphans of the ranks come to us instead of to init.
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  const auto cgroups = find_own_cgroups();
  cgroup_ =
      JobCgroup::create(cgroups.v2, fmt::format("mgpu-{}-{}", ::getpid(), cookie_.substr(0, 8)));
  memory_ = MemoryWatch(cgroups, cgroup_ ? cgroup_->path() : "");
  guard_ = std::make_unique<Guard>(Guard::Job{cookie_, cgroup_ ? cgroup_->path() : "", argv});
  plan_.facts.job_cookie = join_cookies(get_env(kCookieVariable), cookie_);

  const auto ranks = static_cast<size_t>(plan_.placement.nproc);
  workers_.resize(ranks);
  peaks_.resize(ranks);
  exec_errors_ = shared_ints(ranks);
  null_.reset(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!logs_.problem().empty()) note(logs_.problem());

  history_.target = options_.target;
  history_.host = host_name();
  history_.run_id = plan_.facts.run_id;
  history_.node_rank = plan_.placement.node_rank;
  history_.max_restarts = options_.max_restarts;
}

// After a clean end there is nothing to do here; after a failure of our own everything still goes.
EventLoop::~EventLoop() {
  workers_.clear();
  if (!leftovers_.gone()) leftovers_.kill_all();
  ::munmap(const_cast<int*>(exec_errors_),
           static_cast<size_t>(plan_.placement.nproc) * sizeof(int));
}

int EventLoop::run() {
  watch_signals();
  pump(supervisor_.start());
  io_.run();
  return status_;
}

// Carrying out an action may cause events at once; they wait their turn.
void EventLoop::feed(Event event) {
  events_.push_back(std::move(event));
  if (!pumping_) pump({});
}

void EventLoop::pump(const std::vector<Action>& first) {
  pumping_ = true;
  for (const Action& action : first) std::visit([this](const auto& a) { carry_out(a); }, action);
  while (!events_.empty()) {
    const Event next = std::move(events_.front());
    events_.pop_front();
    for (const Action& action : supervisor_.handle(next))
      std::visit([this](const auto& a) { carry_out(a); }, action);
  }
  pumping_ = false;
}

void EventLoop::carry_out(const StartRanks& action) {
  const int ranks = plan_.placement.nproc;
  attempt_began_ = Clock::now();
  killing_ = false;
  leftovers_.begin_attempt();
  memory_.begin_attempt();
  meeting_.begin_attempt();
  history_.attempts.push_back({.number = action.attempt, .started_at = time_of_day()});
  Attempt told{.number = action.attempt,
               .oom_count = oom_count_,
               .master_addr = meeting_.address(),
               .master_port = meeting_.port(),
               .log_dir = logs_.begin_attempt(action.attempt, ranks)};
  specs_ = make_rank_specs(options_, plan_.command, plan_.placement, told, plan_.facts);
  bool all_well = true;
  for (const auto& spec : specs_)
    if (all_well)
      all_well = start_rank(spec);
    else
      not_started(spec.local_rank, 0);
}

bool EventLoop::start_rank(const RankSpec& spec) {
  const auto local = static_cast<size_t>(spec.local_rank);
  workers_[local].reset();
  exec_errors_[local] = 0;
  auto ends = output_.open_rank(spec.local_rank, prefix_of(spec), spec.log_dir);
  ChildSetup setup{.argv = spec.argv,
                   .envp = environment_of(spec),
                   .workdir = options_.workdir,
                   .stdin_fd = spec.rank == 0 ? -1 : null_.get(),
                   .stdout_fd = ends.out.get(),
                   .stderr_fd = ends.err.get(),
                   .binding = BindingMask(spec.binding),
                   .cgroup_fd = cgroup_ ? cgroup_->fd() : -1,
                   .exec_error = &exec_errors_[local]};
  try {
    workers_[local] = std::make_unique<Worker>(io_, spawn(setup, inherited_), setup.exec_error);
  } catch (const std::exception& problem) {
    note(problem.what());
    not_started(spec.local_rank, EAGAIN);
    return false;
  }
  workers_[local]->on_exit([this, rank = spec.local_rank] { collect_ends(rank); });
  return true;
}

// A rank that could not be started has failed; those after it were never tried.
void EventLoop::not_started(int local_rank, int error) {
  RankEnd end{.rank = plan_.placement.base_rank + local_rank, .local_rank = local_rank};
  end.report = {.code = 127, .exec_error = error};
  end.ended_by_us = error == 0;
  end.after_start =
      std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - attempt_began_);
  attempt().ranks.push_back(end);
  feed(RankEnded{local_rank, end.report});
}

std::vector<std::string> EventLoop::environment_of(const RankSpec& spec) const {
  std::map<std::string_view, const std::optional<std::string>*> changed;
  for (const auto& [name, value] : spec.env) changed[name] = &value;
  std::vector<std::string> out;
  for (char** entry = environ; *entry; ++entry) {
    const std::string_view pair = *entry;
    if (!changed.contains(pair.substr(0, pair.find('=')))) out.emplace_back(pair);
  }
  for (const auto& [name, value] : changed)
    if (*value) out.push_back(fmt::format("{}={}", name, **value));
  return out;
}

// Takes the end that woke us first, then all others that are there already: who died before we
// signalled anybody died of its own.
void EventLoop::collect_ends(int first) {
  std::vector<RankEnded> ended;
  collect_end(first, ended);
  for (int rank = 0; rank < plan_.placement.nproc; ++rank) collect_end(rank, ended);
  for (const auto& event : ended) feed(event);
}

void EventLoop::collect_end(int local_rank, std::vector<RankEnded>& ended) {
  auto& worker = workers_[static_cast<size_t>(local_rank)];
  if (!worker) return;
  const auto end = worker->reap();
  if (!end) return;
  output_.drain(local_rank);
  peaks_[static_cast<size_t>(local_rank)] = end->peak_bytes;
  attempt().ranks.push_back({.rank = plan_.placement.base_rank + local_rank,
                             .local_rank = local_rank,
                             .pid = worker->pid(),
                             .report = end->report,
                             .ended_by_us = supervisor_.stopping(),
                             .after_start = std::chrono::duration_cast<std::chrono::microseconds>(
                                 end->when - attempt_began_)});
  ended.push_back({local_rank, end->report});
}

bool EventLoop::is_known_child(pid_t pid) const {
  if (guard_ && guard_->pid() == pid) return true;
  for (const auto& worker : workers_)
    if (worker && worker->running() && worker->pid() == pid) return true;
  return false;
}

void EventLoop::carry_out(const SignalRank& action) {
  auto& worker = workers_[static_cast<size_t>(action.rank)];
  if (!worker) return;
  const bool whole_group = options_.signal_group || !plan_.command.python;
  whole_group ? worker->signal_group(action.signo) : worker->signal_leader(action.signo);
  worker->signal_group(SIGCONT);  // a stopped process cannot follow a request
}

void EventLoop::carry_out(const StartGrace&) {
  grace_.start(options_.grace, [this] { feed(GraceExpired{}); });
}

void EventLoop::carry_out(const KillAll&) {
  killing_ = true;
  for (auto& worker : workers_)
    if (worker) worker->signal_group(SIGKILL);
  if (cgroup_) cgroup_->kill();
  leftovers_.kill_all();
  unkillable_.start(kUnkillable, [this] { give_up_on_the_unkillable(); });
}

// A process in an uninterruptible call cannot be ended by anybody. We say so and go.
void EventLoop::give_up_on_the_unkillable() {
  for (const pid_t pid : leftovers_.list())
    note(fmt::format("process {} does not die of SIGKILL (stuck in the kernel); it is left behind",
                     pid));
  for (size_t rank = 0; rank < workers_.size(); ++rank)
    if (workers_[rank] && workers_[rank]->running()) {
      workers_[rank]->abandon();
      feed(RankEnded{static_cast<int>(rank), {.signo = SIGKILL}});
    }
  sweeping_ = false;
  feed(TreeEmpty{});
}

void EventLoop::carry_out(const Sweep&) {
  sweeping_ = true;
  sweep();
}

void EventLoop::sweep() {
  if (!sweeping_) return;
  if (leftovers_.gone()) {
    sweeping_ = false;
    grace_.cancel();
    unkillable_.cancel();
    feed(TreeEmpty{});
    return;
  }
  killing_ ? leftovers_.kill_all() : leftovers_.ask_to_end();
}

// SIGCHLD: an orphan of ours ended, a rank was stopped, or the guard is gone.
void EventLoop::child_changed() {
  for (size_t rank = 0; rank < workers_.size(); ++rank)
    if (workers_[rank] && workers_[rank]->newly_stopped() && !suspended_)
      note(fmt::format("rank {} (pid {}) was stopped by a signal; kill -CONT {} lets it go on",
                       plan_.placement.base_rank + static_cast<int>(rank), workers_[rank]->pid(),
                       workers_[rank]->pid()));
  guard_->revive();
  if (sweeping_)
    sweep();
  else
    leftovers_.reap();
}

void EventLoop::carry_out(const Judge&) {
  output_.end_attempt();
  describe_first_failure();
  const auto& end = attempt();
  const auto lasted = std::chrono::duration_cast<Milliseconds>(end.first_failure->after_start);
  failures_.push_back({end.cause.kind, lasted});
  if (is_oom(end.cause.kind)) ++oom_count_;
  auto decision = decide_restart(failures_, {options_.max_restarts, options_.retry_delay});
  history_.remark = decision.why;
  if (decision.restart && supervisor_.stop_signal() == 0)
    say(restart_line(end, options_.max_restarts));
  feed(Judged{std::move(decision)});
}

void EventLoop::carry_out(const StartDelay& action) {
  delay_.start(action.delay, [this] { feed(DelayExpired{}); });
}

void EventLoop::carry_out(const Finish& action) {
  finished_ = true;
  status_ = action.status;
  output_.end_attempt();
  history_.status = status_;
  history_.stop_signal = supervisor_.stop_signal();
  history_.lasted =
      std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - job_began_);
  if (status_ != 0) {
    output_.say(last_words(history_));
    write_error_file();
  } else {
    logs_.job_ended_well();
  }
  write_report();
  guard_->dismiss();
  cgroup_.reset();
  output_.when_flushed([this] { io_.stop(); });
}

}  // namespace mgpu::launcher
