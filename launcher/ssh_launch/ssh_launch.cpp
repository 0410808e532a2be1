#include "launcher/ssh_launch/ssh_launch.hpp"

#include <fcntl.h>
#include <pwd.h>
#include <unistd.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <memory>
#include <random>
#include <utility>

#include <fmt/format.h>

#include "launcher/lifecycle/text_lines.hpp"
#include "launcher/nodes/token.hpp"
#include "launcher/output/output.hpp"
#include "launcher/ranks/spawn.hpp"
#include "launcher/ranks/worker.hpp"
#include "launcher/ssh_launch/forwarded_environment.hpp"
#include "launcher/ssh_launch/plan.hpp"
#include "rendezvous/base/errors.hpp"
#include "rendezvous/base/host_name.hpp"
#include "rendezvous/base/signal_names.hpp"

namespace mgpu::launcher {
namespace {

namespace asio = boost::asio;
namespace fs = std::filesystem;
using rendezvous::UniqueFd;

// Added to the time that an agent needs to stop its ranks.
constexpr auto kSlack = std::chrono::seconds(10);
// Time for the other agents to print their messages: an agent that failed to start and a rank that
// exits with 2 cannot be distinguished here.
constexpr auto kOutputDelay = std::chrono::seconds(2);

SshLaunchFacts look_up() {
  SshLaunchFacts facts;
  facts.host_name = rendezvous::host_name();
  if (const passwd* user = ::getpwuid(::geteuid())) facts.user = user->pw_name;
  facts.port =
      std::uniform_int_distribution<int>(20000, 29999)(*std::make_unique<std::random_device>());
  return facts;
}

// The current folder as the user sees it: a symbolic link to it may exist on every host.
std::string working_folder() {
  std::error_code failed;
  const auto here = fs::current_path(failed);
  const auto logical = own_variable("PWD");
  if (logical && fs::path(*logical).is_absolute() && fs::equivalent(*logical, ".", failed))
    return *logical;
  return here.string();
}

// The path of this program; a link is kept, because the program name selects the defaults.
std::string own_file(const std::string& program) {
  std::error_code failed;
  if (program.find('/') != program.npos) return fs::absolute(program, failed).string();
  return fs::read_symlink("/proc/self/exe", failed).string();
}

std::vector<std::string> our_variables(bool (*wanted)(std::string_view)) {
  std::vector<std::string> all;
  for (char** entry = environ; *entry; ++entry) {
    const std::string_view pair = *entry;
    if (wanted(pair.substr(0, pair.find('=')))) all.emplace_back(pair);
  }
  return all;
}

// One agent, or the ssh process that runs it, and its stdin.
struct AgentProcess {
  std::unique_ptr<Worker> worker;
  std::unique_ptr<asio::posix::stream_descriptor> input;  // null: it was requested to stop
  std::string script;
};

// Runs the agents of a job from the first start to the last exit. The destructor kills those that
// are left.
class SshLaunch {
 public:
  SshLaunch(const Options& options, const Inherited& inherited, const std::string& program)
      : options_(options),
        inherited_(inherited),
        plan_(plan_ssh_launch(options, read_hostfile(options), look_up())),
        policy_(static_cast<int>(plan_.size()), least_nodes()),
        output_(io_, console_, static_cast<int>(plan_.size())),
        signals_(io_),
        deadline_(io_),
        program_{
            .workdir = working_folder(), .environment = {}, .exe = own_file(program), .args = {}},
        secret_(make_secret()),
        agents_(plan_.size()) {
    output_.hide_mark(kStartLine);
  }

  int run() {
    for (const int signo : options_.signals_to_handle)
      if (!inherited_.ignores(Signal::numbered(signo))) signals_.add(signo);
    await_signal();
    for (std::size_t i = 0; i < agents_.size(); ++i) start(i);
    io_.run();
    return policy_.status();
  }

 private:
  int least_nodes() const {
    const auto all = static_cast<int>(plan_.size());
    return options_.was_given("nnodes") ? std::min(options_.min_nodes, all) : all;
  }

  std::string name(std::size_t i) const {
    return fmt::format("node {} ({})", i, plan_[i].host.address());
  }

  void print_line(const std::string& line) { output_.print_line("mgpu-run: " + line); }

  void start(std::size_t i) {
    const bool local = plan_[i].local;
    auto& agent = agents_[i];
    program_.args = plan_[i].arguments;
    program_.environment = local ? std::vector<std::string>() : our_variables(is_forwarded);
    agent.script = script_of(program_) + secret_ + "\n";

    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) rendezvous::throw_errno("cannot create a pipe");
    const UniqueFd from(ends[0]);
    agent.input = std::make_unique<asio::posix::stream_descriptor>(io_, ends[1]);
    const auto out = output_.open_rank(static_cast<int>(i), "", "");
    ChildSetup setup{.argv = {"/bin/sh", "-c"},
                     .envp = our_variables(is_inherited),
                     .workdir = {},
                     .stdin_fd = from.get(),
                     .stdout_fd = out.out.get(),
                     .stderr_fd = out.err.get()};
    if (local)
      setup.argv.emplace_back(kRunStdinScript);
    else  // a shell parses the command, so that it may contain options and quotes
      setup.argv.insert(setup.argv.end(), {"exec " + options_.ssh_command + " \"$@\"", "ssh",
                                           plan_[i].host.address(), kRunStdinScript});
    agent.worker = std::make_unique<Worker>(io_, spawn(std::move(setup), inherited_), nullptr);
    agent.worker->on_exit([this, i] { on_agent_exit(i); });
    // An error means that the agent has exited or will exit, which is handled there.
    asio::async_write(*agent.input, asio::buffer(agent.script),
                      [](const boost::system::error_code&, std::size_t) {});
  }

  void on_agent_exit(std::size_t i) {
    const auto end = agents_[i].worker->reap();
    if (!end) return;
    output_.drain(static_cast<int>(i));
    agents_[i].input.reset();
    const bool over_ssh = !plan_[i].local;
    auto report = end->report;
    // Success without the agent, which the other agents would wait for.
    const bool never_started = over_ssh && report.clean() && !output_.saw_mark(static_cast<int>(i));
    if (!stopping_ && never_started)
      print_line(
          fmt::format("{} did not start its agent although ssh exited with status 0: this "
                      "account may not run commands there; try {} {} hostname",
                      name(i), options_.ssh_command, plan_[i].host.address()));
    else if (!stopping_ && SshLaunchPolicy::lost(report, over_ssh))
      print_line(fmt::format("{} cannot be reached or was lost: ssh {}; its last line: {}", name(i),
                             describe(report),
                             last_line(output_.stderr_tail(static_cast<int>(i)))));
    if (never_started) report.code = SshLaunchPolicy::kSshFailed;
    switch (policy_.agent_exited(report, over_ssh)) {
      case SshLaunchPolicy::Step::wait:
        break;
      case SshLaunchPolicy::Step::stop_in_time:
        stop_after(time_to_end());
        break;
      case SshLaunchPolicy::Step::stop_at_once:
        stop_after(SshLaunchPolicy::lost(report, over_ssh) ? Milliseconds(0) : kOutputDelay);
        break;
    }
    if (policy_.done()) finish();
  }

  Milliseconds time_to_end() const { return options_.grace + options_.keep_alive + kSlack; }

  void stop_after(Milliseconds delay) {
    const auto at = Clock::now() + delay;
    if (stopping_ || policy_.done() || (stop_at_ && *stop_at_ <= at)) return;
    stop_at_ = at;
    deadline_.expires_at(at);
    deadline_.async_wait([this](const boost::system::error_code& cancelled) {
      if (!cancelled) stop();
    });
  }

  // An agent stops its ranks and exits when its stdin ends.
  void stop() {
    stopping_ = true;
    for (auto& agent : agents_) agent.input.reset();
    deadline_.expires_after(time_to_end());
    deadline_.async_wait([this](const boost::system::error_code& cancelled) {
      if (!cancelled) kill("did not stop in time");
    });
  }

  void kill(const char* why) {
    for (std::size_t i = 0; i < agents_.size(); ++i)
      if (agents_[i].worker && agents_[i].worker->running()) {
        print_line(
            fmt::format("{} {}; killing its {}", name(i), why, plan_[i].local ? "agent" : "ssh"));
        agents_[i].worker->signal_group(SIGKILL);
      }
  }

  void await_signal() {
    signals_.async_wait([this](const boost::system::error_code& cancelled, int signo) {
      if (cancelled) return;
      if (stopping_ && signo == SIGINT)
        kill("has not stopped yet");
      else if (!stopping_)
        stop_requested(Signal::numbered(signo));
      await_signal();
    });
  }

  void stop_requested(Signal signal) {
    policy_.stop_requested(signal);
    if (!options_.quiet)
      print_line(fmt::format("received {}: stopping the agents",
                             rendezvous::signal_name(signal.number())));
    stop();
  }

  void finish() {
    output_.end_attempt();
    deadline_.cancel();
    output_.when_flushed([this] { io_.stop(); });
  }

  const Options& options_;
  const Inherited& inherited_;
  Options console_;  // options of the output: lines are passed through unchanged
  asio::io_context io_;
  std::vector<AgentStart> plan_;
  SshLaunchPolicy policy_;
  Output output_;
  asio::signal_set signals_;
  asio::steady_timer deadline_;
  RemoteProgram program_;
  std::string secret_;
  std::vector<AgentProcess> agents_;
  std::optional<Clock::time_point> stop_at_;  // unless all agents have exited before
  bool stopping_ = false;
};

}  // namespace

int run_ssh_launch(const Options& options, const Inherited& inherited, const std::string& program) {
  return SshLaunch(options, inherited, program).run();
}

std::string show_ssh_launch(const Options& options) {
  return ssh_launch_text(plan_ssh_launch(options, read_hostfile(options), look_up()));
}

}  // namespace mgpu::launcher
