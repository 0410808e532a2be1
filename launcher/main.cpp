// mgpu-run: parses the options, plans the job, runs it, and returns its exit status.

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <exception>
#include <functional>
#include <sstream>
#include <string>

#include <fmt/format.h>

#include "launcher/devices/devices_command.hpp"
#include "launcher/doctor/command.hpp"
#include "launcher/event_loop/event_loop.hpp"
#include "launcher/nodes/status_command.hpp"
#include "launcher/options/cli.hpp"
#include "launcher/options/completion.hpp"
#include "launcher/options/help.hpp"
#include "launcher/options/options.hpp"
#include "launcher/plan/dry_run.hpp"
#include "launcher/plan/job_plan.hpp"
#include "launcher/ranks/inherited.hpp"
#include "launcher/ssh_launch/ssh_launch.hpp"
#include "rendezvous/base/errors.hpp"
#include "rendezvous/base/exit_status.hpp"

namespace {

using namespace mgpu::launcher;

namespace exit_status = mgpu::exit_status;

void print(std::FILE* stream, const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stream);
  std::fflush(stream);
}

// Prints what a command was started for. A reader that left, as `head` does, is not an error.
void show(const std::string& text) {
  errno = 0;
  const bool written =
      std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  if (!written && errno != EPIPE && errno != ECONNRESET)
    mgpu::rendezvous::throw_errno("cannot write to stdout");
}

// Runs a command that prints, and returns its status.
int show_output(const std::function<int(std::ostream&)>& command) {
  std::ostringstream out;
  const int status = command(out);
  show(out.str());
  return status;
}

// The plan of the job as text or JSON; starts nothing.
std::string show_plan(const Options& options, const JobPlan& plan) {
  const Attempt attempt = planned_attempt(options);
  const auto specs = make_rank_specs(options, plan.command, plan.placement, attempt, plan.facts);
  return options.json ? dry_run_json(options, plan.placement, attempt, specs)
                      : dry_run_text(options, plan.placement, attempt, specs);
}

int run_job(const Options& options, const Inherited& inherited, char** argv) {
  if (options.dry_run && !options.json) show(scheduler_text(options.scheduler));
  JobPlan plan = plan_job(options);
  if (options.dry_run) {
    show(show_plan(options, plan));
    return 0;
  }
  if (!options.quiet)
    for (const auto& note : options.notes) print(stderr, fmt::format("mgpu-run: {}\n", note));
  EventLoop loop(options, std::move(plan), inherited, argv);
  return loop.run();
}

// Runs a --hostfile job: starts one agent per host; the agents run the ranks.
int run_on_hosts(const Options& options, const Inherited& inherited, const char* program) {
  if (options.dry_run) {
    show(show_ssh_launch(options));
    return 0;
  }
  if (!options.quiet)
    for (const auto& note : options.notes) print(stderr, fmt::format("mgpu-run: {}\n", note));
  return run_ssh_launch(options, inherited, program);
}

int run(int argc, char** argv, const Inherited& inherited) {
  const Options options = parse_options(argc, argv);
  switch (options.command) {
    case Command::help:
      show(help_text());
      return 0;
    case Command::version:
      show(version_text());
      return 0;
    case Command::completion:
      show(completion_script(options.completion_shell));
      return 0;
    case Command::devices:
      return show_output([&](std::ostream& out) { return run_devices_command(options, out); });
    case Command::doctor:
      return show_output(
          [&](std::ostream& out) { return run_doctor_command(options, inherited, out); });
    case Command::status:
      return show_output([&](std::ostream& out) { return run_status_command(options, out); });
    case Command::run:
      if (!options.hostfile.empty() && !options.rdzv_token_stdin)
        return run_on_hosts(options, inherited, argv[0]);
      return run_job(options, inherited, argv);
  }
  return exit_status::kFailure;
}

}  // namespace

int main(int argc, char** argv) {
  const Inherited inherited = record_and_adjust_process();
  try {
    return run(argc, argv, inherited);
  } catch (const UsageError& error) {
    print(stderr, fmt::format("mgpu-run: {}\n", error.what()));
    return exit_status::kUsage;
  } catch (const std::exception& failure) {
    print(stderr, fmt::format("mgpu-run: {}\n", failure.what()));
    return exit_status::kFailure;
  }
}
