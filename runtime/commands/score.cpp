#include <fmt/format.h>

#include <cerrno>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>

#include "rendezvous/base/errors.hpp"
#include "rendezvous/base/file_presence.hpp"
#include "rendezvous/base/untrusted_json.hpp"
#include "runtime/commands/commands.hpp"
#include "runtime/rewards/score_file.hpp"

namespace mgpu::recipes {
namespace {

rewards::Settings settings_of(const std::string& text) {
  if (text.empty()) return {};
  const auto values = rendezvous::parse_untrusted_json(text);
  if (values.is_discarded())
    throw train::UsageError("--settings must be a JSON object, such as {\"cosine_max_len\": 500}");
  try {
    return rewards::read_settings(values);
  } catch (const std::runtime_error& e) {
    throw train::UsageError(std::string("--settings: ") + e.what());
  }
}

std::vector<std::string> names_in(const std::string& list) {
  std::vector<std::string> names;
  std::istringstream words(list);
  for (std::string name; std::getline(words, name, ',');) names.push_back(name);
  return names;
}

}  // namespace

int score(const train::ScoreCommand& command) {
  const auto settings = settings_of(command.settings);
  std::ifstream rows(command.input);
  if (!rows && (errno == ENOENT || errno == ENOTDIR))
    throw train::UsageError(
        fmt::format("cannot read {}: {}", command.input, rendezvous::error_text(errno)));
  if (!rows) rendezvous::throw_errno("cannot read " + command.input);
  if (rendezvous::is_folder(command.input))
    throw train::UsageError(
        fmt::format("{} is a folder; give a file with completions", command.input));
  // Before rewards that may take long; it is not emptied yet, because it may be the input.
  if (!command.output.empty() && !std::ofstream(command.output, std::ios::app))
    rendezvous::throw_errno("cannot write " + command.output);
  std::ostringstream scores;
  rewards::score_rows(rows, command.input, names_in(command.rewards), settings, scores);
  std::ofstream file;
  if (!command.output.empty()) file.open(command.output);
  std::ostream& out = command.output.empty() ? std::cout : file;
  out << scores.str() << std::flush;
  if (!out)
    throw std::runtime_error("cannot write " +
                             (command.output.empty() ? std::string("the scores") : command.output));
  return 0;
}

}  // namespace mgpu::recipes
