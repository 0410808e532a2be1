#include "launcher/doctor/command.hpp"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "launcher/doctor/look_up.hpp"
#include "rendezvous/base/exit_status.hpp"

namespace mgpu::launcher {
namespace {

constexpr std::size_t kReportWidth = 100;

const char* word_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::pass:
      return "PASS";
    case Verdict::warn:
      return "WARN";
    case Verdict::fail:
      return "FAIL";
  }
  return "";
}

std::size_t count(const std::vector<Finding>& findings, Verdict verdict) {
  return static_cast<std::size_t>(
      std::count_if(findings.begin(), findings.end(),
                    [&](const Finding& finding) { return finding.verdict == verdict; }));
}

// Wraps the text at kReportWidth; all lines but the first are indented by `indent` spaces.
std::string wrapped(std::string_view text, std::size_t indent) {
  std::string lines;
  std::size_t column = indent;
  while (!text.empty()) {
    const auto blank = std::min(text.find(' '), text.size());
    const auto word = text.substr(0, blank);
    text.remove_prefix(std::min(blank + 1, text.size()));
    if (column > indent && column + 1 + word.size() > kReportWidth) {
      lines += "\n" + std::string(indent, ' ');
      column = indent;
    } else if (column > indent) {
      lines += ' ';
      ++column;
    }
    lines += word;
    column += word.size();
  }
  return lines;
}

// Replaces control characters: output of other programs and names may contain them.
std::string printable(std::string text) {
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = ' ';
  return text;
}

}  // namespace

std::string doctor_text(const std::vector<Finding>& findings) {
  std::size_t width = 0;
  for (const auto& finding : findings) width = std::max(width, finding.check.size());
  const std::size_t indent = 6 + width + 2;
  std::string text;
  for (const auto& finding : findings) {
    text += fmt::format("{}  {:<{}}  {}\n", word_of(finding.verdict), finding.check, width,
                        wrapped(printable(finding.text), indent));
    if (!finding.advice.empty())
      text +=
          fmt::format("{:{}}-> {}\n", "", indent, wrapped(printable(finding.advice), indent + 3));
  }
  const auto warnings = count(findings, Verdict::warn);
  return text + fmt::format("{} passed, {} warning{}, {} failed\n", count(findings, Verdict::pass),
                            warnings, warnings == 1 ? "" : "s", count(findings, Verdict::fail));
}

std::string doctor_json(const std::vector<Finding>& findings) {
  auto checks = nlohmann::ordered_json::array();
  for (const auto& finding : findings)
    checks.push_back({{"check", finding.check},
                      {"verdict", word_of(finding.verdict)},
                      {"text", finding.text},
                      {"advice", finding.advice}});
  const nlohmann::ordered_json all = {{"checks", checks},
                                      {"passed", count(findings, Verdict::pass)},
                                      {"warnings", count(findings, Verdict::warn)},
                                      {"failed", count(findings, Verdict::fail)}};
  return all.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

int run_doctor_command(const Options& options, const Inherited& inherited, std::ostream& out) {
  const auto findings = examine(look_up_doctor_facts(options, inherited));
  out << (options.json ? doctor_json(findings) : doctor_text(findings)) << std::flush;
  return count(findings, Verdict::fail) > 0 ? exit_status::kFailure : 0;
}

}  // namespace mgpu::launcher
