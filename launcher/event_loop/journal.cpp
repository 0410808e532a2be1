#include "launcher/event_loop/journal.hpp"

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <utility>

#include <fmt/format.h>

#include "launcher/lifecycle/suspended_rank.hpp"
#include "rendezvous/base/errors.hpp"
#include "rendezvous/base/spelling.hpp"
#include "rendezvous/contract.hpp"

namespace mgpu::launcher {
namespace {

std::string time_of_day() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&now, &local);
  char text[64];
  return {text, std::strftime(text, sizeof text, "%F %T", &local)};
}

}  // namespace

Journal::Journal(const Options& options, const JobPlan& plan, std::string host, Print print,
                 Write write)
    : options_(options),
      plan_(plan),
      print_(std::move(print)),
      write_(std::move(write)),
      job_began_(Clock::now()) {
  job_.target = options.target;
  job_.host = std::move(host);
  job_.run_id = plan.facts.run_id;
  job_.node_rank = plan.placement.node_rank;
  if (options.scheduler.kind != SchedulerJob::Kind::none)
    job_.scheduler_job =
        fmt::format("{} job {}", name_of(options.scheduler.kind), options.scheduler.job_id);
  job_.max_restarts = options.max_restarts;
  job_.renewed_by_progress = options.restarts_renewed;
}

void Journal::note(std::string_view line) {
  if (!options_.quiet) print_(fmt::format("mgpu-run: {}", line));
}

void Journal::round_started() {
  job_.node_rank = plan_.placement.node_rank;
  job_.nodes = plan_.placement.nodes;
}

void Journal::attempt_started(int number) {
  attempt_began_ = Clock::now();
  job_.attempts.push_back({.number = number, .started_at = time_of_day()});
}

void Journal::rank_exited(RankResult result, Clock::time_point when) {
  result.rank = plan_.placement.base_rank + result.local_rank;
  result.after_start = between(attempt_began_, when);
  result.node_rank = plan_.placement.node_rank;
  if (plan_.rendezvous_plan) result.host = job_.host;
  attempt().ranks.push_back(std::move(result));
}

void Journal::rank_replaced(int local_rank, std::int64_t last_step, Cause cause) {
  const auto exited = std::ranges::find(attempt().ranks.rbegin(), attempt().ranks.rend(),
                                        local_rank, &RankResult::local_rank);
  if (exited == attempt().ranks.rend()) return;
  exited->replaced_after = last_step;
  exited->replaced_because = std::move(cause);
  note(replacement_line(*exited, static_cast<int>(failed_attempts().size()), job_));
}

Milliseconds Journal::since_attempt() const {
  return std::chrono::duration_cast<Milliseconds>(Clock::now() - attempt_began_);
}

std::vector<FailedAttempt> Journal::failed_attempts() const {
  const auto in_ms = [](auto time) { return std::chrono::duration_cast<Milliseconds>(time); };
  std::vector<FailedAttempt> failed;
  for (const auto& attempt : job_.attempts) {
    for (const auto& rank : attempt.ranks)
      if (rank.replaced_after)
        failed.push_back({rank.replaced_because.kind, in_ms(rank.after_start), *rank.replaced_after,
                          false, rank.replaced_because.certain, rank.replaced_because.text});
    if (attempt.first_failure)
      failed.push_back({attempt.cause.kind, in_ms(attempt.first_failure->after_start),
                        attempt.last_step, false, attempt.cause.certain, attempt.cause.text});
  }
  return failed;
}

void Journal::end_job(int status, Signal stop_signal) {
  job_.status = status;
  job_.stop_signal = stop_signal;
  job_.lasted = between(job_began_, Clock::now());
}

void Journal::finish(int status, Signal stop_signal) {
  end_job(status, stop_signal);
  if (status != 0) {
    print_(failure_report(job_));
    write_error_file();
  }
  write_report();
}

// The leader prints the failure report; the other agents print where to find it.
void Journal::finish_in_cluster(int status, Signal stop_signal, const JobResult* whole) {
  if (whole && whole->status == status) {
    const int node_rank = std::exchange(job_, *whole).node_rank;
    job_.node_rank = node_rank;
  } else {
    end_job(status, stop_signal);
  }
  if (status != 0) {
    const bool elsewhere = !whole && !job_.remark.empty();
    print_(elsewhere ? fmt::format("mgpu-run: {}", job_.remark) : failure_report(job_));
    write_error_file();
  }
  write_report();
}

// Under another launcher, the first failure is also reported as the failure of its worker.
void Journal::write_error_file() {
  const char* path = std::getenv(rendezvous::variable::kErrorFile);
  if (!path || !*path || job_.attempts.empty() || !attempt().first_failure) return;
  ErrorFile error = attempt().error_file.value_or(ErrorFile{.message = attempt().cause.text});
  error.error_code = first_to_exit(attempt()).report.shell_status();
  if (error.timestamp == 0) error.timestamp = std::time(nullptr);
  write(path, to_json(error), "cannot write");
}

void Journal::write_report() {
  if (!options_.report.empty())
    write(options_.report, report_json(job_), "cannot write the report");
}

void Journal::write(const std::string& path, std::string text, const std::string& what) {
  write_(path, std::move(text), [this, path, what](int error) {
    print_(fmt::format("mgpu-run: {} {}: {}", what, rendezvous::shown(path, 300),
                       rendezvous::error_text(error)));
  });
}

}  // namespace mgpu::launcher
