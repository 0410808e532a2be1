#include "runtime/config/resolve.hpp"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <limits>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "rendezvous/base/passing_error.hpp"
#include "runtime/config/rules/rules.hpp"

namespace mgpu::train {
namespace {

// A used key without a field that no rule reads would be dropped silently.
void check_all_read(const Reading& reading) {
  for (const auto& setting : reading.settings)
    if (!setting.key->field.set && !reading.was_read(*setting.key))
      throw std::logic_error(fmt::format("no rule reads the key {}", setting.key->name));
}

// Resolves a relative path that does not exist against the folder of the recipe.
ReadFile beside(const std::string& recipe, const ReadFile& read_file) {
  const auto folder = std::filesystem::path(recipe).parent_path();
  return [folder, read_file](const std::string& path) {
    std::error_code ignored;
    const auto near = folder / path;
    const bool found = folder.empty() || std::filesystem::exists(path, ignored);
    return read_file(found || !std::filesystem::exists(near, ignored) ? path : near.string());
  };
}

// Sorts by line of the file; messages without a line come last.
void sort_by_line(std::vector<std::string>& lines, const std::string& name) {
  const auto begin = at_line(name, 0);  // "job.yaml:0"
  const auto line_of = [&](const std::string& line) {
    const std::string_view prefix(begin.data(), begin.size() - 1);
    int number = 0;
    if (!line.starts_with(prefix)) return std::numeric_limits<int>::max();
    std::from_chars(line.data() + prefix.size(), line.data() + line.size(), number);
    return number;
  };
  std::stable_sort(lines.begin(), lines.end(),
                   [&](const auto& a, const auto& b) { return line_of(a) < line_of(b); });
}

// One line for all features that a recipe lacks: the first with its place, then the others.
std::string missing_features(std::vector<std::string> missing, const std::string& name) {
  sort_by_line(missing, name);
  std::vector<std::string> features;
  for (const auto& line : missing)
    if (auto feature = line.substr(line.rfind(": ") + 2);
        std::find(features.begin(), features.end(), feature) == features.end())
      features.push_back(std::move(feature));
  auto line = missing.front() + " is not supported";
  for (std::size_t i = 1; i < features.size(); ++i)
    line += (i == 1 ? "; nor is " : ", ") + features[i];
  return line;
}

// Another kind of file, which would get a line for each of its keys.
void reject_other_file(const Reading& reading, const std::string& where) {
  constexpr std::size_t kShown = 3;
  const auto& unknown = reading.unknown;
  if (reading.settings.size() + reading.config.notes.size() > 0 || unknown.size() < kShown) return;
  throw_recipe_error(fmt::format("{}: not a recipe: none of its keys is known ({}{})", where,
                                 fmt::join(unknown.begin(), unknown.begin() + kShown, ", "),
                                 unknown.size() > kShown ? ", ..." : ""));
}

TrainConfig resolve(const YamlNode& top, const std::string& name, const RecipeOptions& options) {
  if (!top.is_map())
    throw RecipeError({fmt::format("{}: {}", at_line(name, top.line),
                                   top.kind == YamlNode::Kind::null
                                       ? "the file is empty"
                                       : "a recipe consists of \"key: value\" lines")});
  Reading reading;
  Source source{name, options.allow_unknown, false, beside(name, options.read_file)};
  collect_file(reading, top, source);
  reject_other_file(reading, at_line(name, top.line));
  source.name = "--set";
  source.overrides = true;
  for (const auto& assignment : options.set) collect_override(reading, assignment, source);
  recommendation_names(reading);
  merge_repetitions(reading);
  decide_task(reading);
  method_rules(reading);
  if (reading.config.task == Task::grpo) {
    recommendation_rules(reading);
    grpo_rules(reading);
  }
  dispatch_settings(reading);
  apply_fields(reading);
  for (const auto rule :
       {template_rules, data_rules, mixture_rules, batch_rules, schedule_rules, precision_rules,
        memory_rules, lora_rules, embedding_rule, fp8_rules, evaluation_rules})
    rule(reading);
  check_all_read(reading);
  if (!reading.missing.empty()) throw RecipeError({missing_features(reading.missing, name)});
  // After an error values are missing, and the checks would report contradictions that the recipe
  // does not have.
  if (reading.errors.empty()) cross_checks(reading);
  sort_by_line(reading.errors, name);
  sort_by_line(reading.config.notes, name);
  if (!reading.errors.empty()) throw RecipeError(std::move(reading.errors));
  return std::move(reading.config);
}

}  // namespace

RecipeError::RecipeError(std::vector<std::string> lines)
    : std::runtime_error(fmt::format("{}", fmt::join(lines, "\n"))), lines_(std::move(lines)) {}

TrainConfig parse_recipe(const std::string& text, const std::string& name,
                         const RecipeOptions& options) {
  try {
    return resolve(parse_yaml(text, name), name, options);
  } catch (const RecipeError&) {
    throw;
  } catch (const std::runtime_error& e) {
    if (rendezvous::is_passing(e)) throw;
    throw RecipeError({e.what()});
  }
}

TrainConfig read_recipe(const std::string& path, const RecipeOptions& options) {
  if (path.empty()) return parse_recipe("{}", "--set", options);
  try {
    return resolve(read_yaml(path), path, options);
  } catch (const RecipeError&) {
    throw;
  } catch (const std::runtime_error& e) {
    if (rendezvous::is_passing(e)) throw;
    throw RecipeError({e.what()});
  }
}

}  // namespace mgpu::train
