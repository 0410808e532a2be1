// The part of the event loop that determines why a rank failed and writes the reports.

#include <cerrno>
#include <cstdlib>
#include <ctime>
#include <fstream>

#include <fmt/format.h>

#include "launcher/event_loop/event_loop.hpp"
#include "rendezvous/base/errors.hpp"
#include "rendezvous/base/spelling.hpp"
#include "rendezvous/contract.hpp"

namespace mgpu::launcher {
namespace {

bool write_file(const std::string& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << text << '\n';
  return static_cast<bool>(out.flush());
}

}  // namespace

std::string EventLoop::time_of_day() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&now, &local);
  char text[64];
  return {text, std::strftime(text, sizeof text, "%F %T", &local)};
}

void EventLoop::print_line(std::string_view line) {
  if (!options_.quiet) output_.print_line(line);
}

void EventLoop::note(std::string_view line) {
  print_line(fmt::format("mgpu-run: {}", line));
}

void EventLoop::describe_first_failure() {
  AttemptResult& end = attempt();
  for (const auto& rank : end.ranks)
    if (rank.local_rank == supervisor_.first_failed()) end.first_failure = rank;
  const auto local = static_cast<size_t>(supervisor_.first_failed());
  const std::string rank_dir = specs_[local].log_dir;
  end.log_dir = rank_dir;
  end.stderr_tail = output_.stderr_tail(supervisor_.first_failed());
  const std::string error_path = rank_dir.empty() ? "" : rank_dir + "/error.json";
  if (!error_path.empty()) end.error_file = read_error_file(error_path);

  FailureEvidence evidence{.report = end.first_failure->report,
                           .error_file = end.error_file,
                           .stderr_tail = end.stderr_tail,
                           .memory = memory_.facts()};
  evidence.memory.rank_peak_bytes = peaks_[local];
  end.cause = diagnose(evidence);

  // Writes the same file for a program without @record.
  if (end.error_file || error_path.empty() || !plan_.command.python) return;
  if (auto found = python_exception_in(end.stderr_tail)) {
    found->timestamp = std::time(nullptr);
    write_file(error_path, to_json(*found));
    end.error_file = std::move(found);
  }
}

// Under another launcher, the first failure is also reported as the failure of its worker.
void EventLoop::write_error_file() {
  const char* path = std::getenv(rendezvous::variable::kErrorFile);
  if (!path || !*path || !attempt().first_failure) return;
  ErrorFile error = attempt().error_file.value_or(ErrorFile{.message = attempt().cause.text});
  error.error_code = attempt().first_failure->report.shell_status();
  if (error.timestamp == 0) error.timestamp = std::time(nullptr);
  if (!write_file(path, to_json(error)))
    note(fmt::format("cannot write {}: {}", rendezvous::shown(path, 300),
                     rendezvous::error_text(errno)));
}

void EventLoop::write_report() {
  if (options_.report.empty()) return;
  if (!write_file(options_.report, report_json(history_)))
    note(fmt::format("cannot write the report {}: {}", rendezvous::shown(options_.report, 300),
                     rendezvous::error_text(errno)));
}

std::string EventLoop::prefix_of(const RankSpec& spec) const {
  std::string text = options_.prefix_template;
  if (text.empty()) return fmt::format("[{}{}]:", options_.role, spec.local_rank);
  const std::pair<const char*, std::string> variables[] = {
      {"role_name", options_.role},
      {"local_rank", std::to_string(spec.local_rank)},
      {"rank", std::to_string(spec.rank)},
      {"node_rank", std::to_string(plan_.placement.node_rank)},
      {"hostname", history_.host}};
  for (const auto& [name, value] : variables)
    for (const auto& form : {fmt::format("${{{}}}", name), fmt::format("${}", name)})
      for (size_t at = 0; (at = text.find(form, at)) != std::string::npos; at += value.size())
        text.replace(at, form.size(), value);
  return text;
}

}  // namespace mgpu::launcher
