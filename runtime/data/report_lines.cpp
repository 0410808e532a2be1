#include "runtime/data/report_lines.hpp"

#include <fmt/format.h>

namespace mgpu::data {
namespace {

std::string counted(std::uint64_t count, const SourceReport& report, const char* what) {
  return fmt::format("{}: {} of {} row{} {}", report.path, count, report.rows,
                     report.rows == 1 ? "" : "s", what);
}

}  // namespace

std::vector<std::string> lines_of(const SourceReport& report, std::int64_t max_length) {
  std::vector<std::string> lines;
  for (const auto& note : report.notes) lines.push_back(fmt::format("{}: {}", report.path, note));
  if (report.bad > 0)
    lines.push_back(counted(report.bad, report, "skipped as bad; the first: ") +
                    report.bad_rows.front());
  if (report.unused > 0)
    lines.push_back(
        counted(report.unused, report, "left out by the slice of the split or max_samples"));
  if (report.lost > 0)
    lines.push_back(counted(report.lost, report,
                            "with the end of the prompt in the loss, because one token spans "
                            "prompt and completion; the first: ") +
                    report.lost_prompt);
  if (report.unwritten_tools > 0)
    lines.push_back(
        counted(report.unwritten_tools, report,
                "with tools or tool calls that the chat template does not write; to train on "
                "them, set chat_template to one that does"));
  if (report.truncated > 0)
    lines.push_back(
        counted(report.truncated, report, fmt::format("cut to max_length {}", max_length).c_str()));
  if (report.dropped > 0)
    lines.push_back(
        counted(report.dropped, report,
                fmt::format("dropped: no target token within max_length {}", max_length).c_str()));
  return lines;
}

}  // namespace mgpu::data
