#include "launcher/lifecycle/report.hpp"

#include <algorithm>
#include <csignal>
#include <cstddef>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "launcher/lifecycle/text_lines.hpp"
#include "rendezvous/base/printable.hpp"
#include "rendezvous/base/signal_names.hpp"
#include "rendezvous/base/untrusted_json.hpp"

namespace mgpu::launcher {
namespace {

using nlohmann::json;
using rendezvous::signal_name;

constexpr size_t kShownLines = 20;

std::string seconds(std::chrono::microseconds time) {
  return fmt::format("{:.3f} s", double(time.count()) / 1e6);
}

std::string describe_result(const RankResult& result) {
  if (result.pid == 0 && result.report.exec_error == 0) return "was not started";
  if (result.replaced_after) return describe(result.report) + "; replaced";
  if (!result.ended_by_us || result.report.clean()) return describe(result.report);
  return fmt::format("{} after mgpu-run stopped it", describe(result.report));
}

// The last lines of a text, at most kShownLines, each after a vertical bar.
std::string quoted_tail(std::string_view text) {
  std::string out;
  for (const auto line : lines_of(last_lines(text, kShownLines)))
    out += fmt::format("    | {}\n", rendezvous::printable_output(line));
  return out;
}

// The kind, the text that decided unless the cause contains it, and what was done about it.
std::string kind_line(const AttemptResult& attempt) {
  const Cause& cause = attempt.cause;
  std::string line = fmt::format("    kind    {}", name_of(cause.kind));
  if (!cause.evidence.empty() && cause.text.find(cause.evidence) == std::string::npos)
    line += fmt::format(", by \"{}\"", cause.evidence);
  if (cause.cascade) line += ", a consequence of another failure";
  if (!attempt.policy.empty()) line += fmt::format("; policy {}", attempt.policy);
  return line + "\n";
}

std::string first_failure_lines(const AttemptResult& attempt, const JobResult& job) {
  const RankResult& first = *attempt.first_failure;
  std::string out =
      fmt::format("  first failure: rank {} (local rank {}, node {}, {}, {})\n", first.rank,
                  first.local_rank, first.host.empty() ? job.node_rank : first.node_rank,
                  first.host.empty() ? job.host : first.host,
                  first.pid ? fmt::format("pid {}", first.pid) : "no process");
  out += fmt::format("    result  {}, {} after the start at {}\n", describe_result(first),
                     seconds(first.after_start), attempt.started_at);
  out += fmt::format("    cause   {}\n", attempt.cause.text);
  if (!attempt.cause.advice.empty()) out += fmt::format("    advice  {}\n", attempt.cause.advice);
  out += kind_line(attempt);
  if (!attempt.log_dir.empty()) out += fmt::format("    logs    {}\n", attempt.log_dir);
  if (!attempt.evidence.empty()) out += fmt::format("    stacks  {}\n", attempt.evidence);
  if (attempt.error_file && !attempt.error_file->callstack.empty() && attempt.stderr_tail.empty())
    out += "  its error file:\n" + quoted_tail(attempt.error_file->callstack);
  if (!attempt.stderr_tail.empty())
    out += "  last lines of its stderr:\n" + quoted_tail(attempt.stderr_tail);
  return out;
}

std::string mark_of(const RankResult& rank, const AttemptResult& attempt) {
  if (!attempt.first_failure || rank.replaced_after) return {};
  const int first = attempt.first_failure->rank;
  if (rank.rank == first) return "   <- first";
  return rank.rank == attempt.root_rank ? "   <- the cause" : "";
}

// What a rank's end was in the failed attempt; empty: a success.
std::string role_of(const RankResult& rank, const AttemptResult& attempt) {
  if (rank.report.clean()) return {};
  if (rank.replaced_after) return "replaced";
  if (rank.rank == attempt.root_rank && !attempt.cause.cascade) return "root";
  return rank.ended_by_us ? "stopped" : "cascade";
}

std::string rank_table(const AttemptResult& attempt) {
  size_t widest = 0;
  for (const auto& rank : attempt.ranks) widest = std::max(widest, rank.host.size());
  const auto host = [&](const std::string& name) {
    return widest == 0 ? std::string() : fmt::format("{:<{}}  ", name, std::max<size_t>(widest, 4));
  };
  std::string out = fmt::format("  rank  {}pid       after        result\n", host("host"));
  for (const auto& rank : attempt.ranks)
    out += fmt::format("  {:<5} {}{:<9} {:<12} {}{}\n", rank.rank, host(rank.host),
                       rank.pid ? std::to_string(rank.pid) : "-", seconds(rank.after_start),
                       describe_result(rank), mark_of(rank, attempt));
  return out;
}

// Why the job was stopped. ^C comes from a person; schedulers send other signals.
FailureKind stop_kind(const JobResult& job) {
  const bool by_scheduler = !job.scheduler_job.empty() && job.stop_signal != SIGINT;
  return by_scheduler ? FailureKind::preempted : FailureKind::killed;
}

std::string node_change_lines(const JobResult& job) {
  std::string out;
  for (const auto& attempt : job.attempts)
    if (!attempt.node_change.empty())
      out += fmt::format("\n  after attempt {}: {}", attempt.number + 1, attempt.node_change);
  return out;
}

json as_json(const Cause& cause) {
  return {{"kind", std::string(name_of(cause.kind))},
          {"text", cause.text},
          {"advice", cause.advice},
          {"signature", cause.signature},
          {"evidence", cause.evidence},
          {"role", cause.cascade ? "cascade" : "root"}};
}

json as_json(const RankResult& result) {
  json object = {
      {"rank", result.rank},
      {"local_rank", result.local_rank},
      {"pid", result.pid},
      {"exit_code", result.report.signal ? json() : json(result.report.code)},
      {"signal", result.report.signal ? json(signal_name(result.report.signal.number())) : json()},
      {"core_dumped", result.report.core_dumped},
      {"ended_by_us", result.ended_by_us},
      {"after_start_s", double(result.after_start.count()) / 1e6},
      {"words", describe_result(result)}};
  if (result.replaced_after)
    object["replaced"] = true, object["cause"] = as_json(result.replaced_because);
  if (!result.host.empty()) object["host"] = result.host, object["node_rank"] = result.node_rank;
  return object;
}

json as_json(const AttemptResult& attempt) {
  json object = {{"attempt", attempt.number}, {"started_at", attempt.started_at}};
  object["ranks"] = json::array();
  for (const auto& rank : attempt.ranks) {
    object["ranks"].push_back(as_json(rank));
    if (attempt.first_failure) object["ranks"].back()["role"] = role_of(rank, attempt);
  }
  if (!attempt.node_change.empty()) object["node_change"] = attempt.node_change;
  if (attempt.last_step >= 0) object["last_step"] = attempt.last_step;
  if (attempt.first_failure || attempt.cause.kind != Cause::Kind::none)
    object["cause"] = as_json(attempt.cause);
  if (!attempt.first_failure) return object;
  object["first_failure"] = as_json(*attempt.first_failure);
  object["root_rank"] = attempt.root_rank;
  object["policy"] = attempt.policy;
  object["log_dir"] = attempt.log_dir;
  if (!attempt.evidence.empty()) object["evidence"] = attempt.evidence;
  object["stderr_tail"] = attempt.stderr_tail;
  if (attempt.error_file)
    object["error_file"] = rendezvous::parse_untrusted_json(to_json(*attempt.error_file));
  return object;
}

// The ranks that were replaced; each one used up a restart.
std::ptrdiff_t replacements(const JobResult& job) {
  std::ptrdiff_t count = 0;
  for (const auto& attempt : job.attempts)
    count += std::ranges::count_if(
        attempt.ranks, [](const auto& rank) { return rank.replaced_after.has_value(); });
  return count;
}

std::string replacements_text(const JobResult& job) {
  const auto count = replacements(job);
  return count == 0 ? "" : fmt::format(", after {} replacement{}", count, count == 1 ? "" : "s");
}

}  // namespace

std::string restart_line(const AttemptResult& attempt, const JobResult& job, int counted) {
  const auto number = attempt.number + 1 + replacements(job);
  const auto restart =
      job.renewed_by_progress
          ? fmt::format("restart {}, {}", number,
                        counted == 0
                            ? fmt::format("after new steps up to {}", attempt.last_step)
                            : fmt::format("{} of {} without a new step", counted, job.max_restarts))
          : fmt::format("restart {} of {}", number, job.max_restarts);
  return fmt::format("rank {} failed: {}; restarting all ranks ({})", attempt.first_failure->rank,
                     attempt.cause.text, restart);
}

std::string replacement_line(const RankResult& exited, int counted, const JobResult& job) {
  return fmt::format(
      "rank {} (pid {}) {}; starting a new process in its place ({})", exited.rank, exited.pid,
      describe(exited.report),
      job.renewed_by_progress
          ? fmt::format("after step {}", std::max<std::int64_t>(0, *exited.replaced_after))
          : fmt::format("counts as restart {} of {}", counted, job.max_restarts));
}

std::string failure_report(const JobResult& job) {
  const AttemptResult last = job.attempts.empty() ? AttemptResult{} : job.attempts.back();
  if (!last.first_failure && !job.stop_signal)
    return fmt::format("mgpu-run: {} ended after {}: {} (exit status {})", job.target,
                       seconds(job.lasted), job.remark, job.status) +
           node_change_lines(job);
  if (!last.first_failure)
    return fmt::format("mgpu-run: {} was stopped by {} after {} (exit status {}){}", job.target,
                       signal_name(job.stop_signal.number()), seconds(job.lasted), job.status,
                       stop_kind(job) == FailureKind::preempted
                           ? fmt::format("; {} was cancelled or preempted, or has reached its time "
                                         "limit",
                                         job.scheduler_job)
                           : "") +
           node_change_lines(job);
  std::string out =
      fmt::format("mgpu-run: {} failed after {}, attempt {}{}{} (exit status {})\n", job.target,
                  seconds(job.lasted), last.number + 1,
                  job.renewed_by_progress ? "" : fmt::format(" of {}", job.max_restarts + 1),
                  replacements_text(job), job.status);
  out += first_failure_lines(last, job);
  if (last.ranks.size() > 1) out += rank_table(last);
  if (job.stop_signal)
    out += fmt::format("  no restart: stopped by {}\n", signal_name(job.stop_signal.number()));
  if (!job.remark.empty()) out += fmt::format("  {}\n", job.remark);
  out.pop_back();
  return out + node_change_lines(job);
}

std::string report_json(const JobResult& job) {
  json object = {
      {"target", job.target},
      {"host", job.host},
      {"run_id", job.run_id},
      {"node_rank", job.node_rank},
      {"exit_status", job.status},
      {"stop_signal", job.stop_signal ? json(signal_name(job.stop_signal.number())) : json()},
      {"stop_kind", job.stop_signal ? json(name_of(stop_kind(job))) : json()},
      {"max_restarts", job.max_restarts},
      {"remark", job.remark},
      {"lasted_s", double(job.lasted.count()) / 1e6}};
  object["attempts"] = json::array();
  for (const auto& attempt : job.attempts) object["attempts"].push_back(as_json(attempt));
  return object.dump(2, ' ', false, json::error_handler_t::replace);
}

}  // namespace mgpu::launcher
