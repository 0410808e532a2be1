#include "launcher/options/launch_file.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <optional>
#include <string_view>

#include <fmt/format.h>

#include "launcher/options/accelerate_file.hpp"
#include "launcher/options/parse_values.hpp"
#include "launcher/options/saved_file.hpp"
#include "launcher/options/yaml_values.hpp"
#include "rendezvous/base/spelling.hpp"

namespace mgpu::launcher {

using rendezvous::nearest;
using rendezvous::shown;
namespace {

const std::string kSection = "launch";
constexpr const char* kFaultTolerance = "enable_fault_tolerance";  // a key of older recipes
constexpr char kRestartsWhenTolerant = '3';

// What recipes set outside launch:, under the names that other projects use, and the option that
// each is. A value that means "not set" there is skipped.
struct RecipeKey {
  std::string_view key;
  const char* option;
  std::string_view unset = "";
};
constexpr std::array kRecipeKeys{
    RecipeKey{"nproc", "nproc"},
    RecipeKey{"nproc_per_node", "nproc"},
    RecipeKey{"num_gpus", "nproc", "0"},
    RecipeKey{"n_gpus", "nproc", "0"},
    RecipeKey{"gpus", "nproc", "0"},
    RecipeKey{"num_processes", "num-processes"},
    RecipeKey{"world_size", "num-processes"},
    RecipeKey{"gpu_ids", "gpus", "all"},
    RecipeKey{"device_ids", "gpus"},
    RecipeKey{"cuda_visible_devices", "gpus"},
    RecipeKey{"nnodes", "nnodes"},
    RecipeKey{"num_machines", "nnodes"},
    RecipeKey{"num_nodes", "nnodes"},
    RecipeKey{"node_rank", "node-rank"},
    RecipeKey{"machine_rank", "node-rank"},
    RecipeKey{"master_addr", "master-addr"},
    RecipeKey{"main_process_ip", "master-addr"},
    RecipeKey{"master_port", "master-port"},
    RecipeKey{"main_process_port", "master-port"},
    RecipeKey{"rdzv_backend", "rdzv-backend"},
    RecipeKey{"max_restarts", "max-restarts"},
    RecipeKey{"max_retries", "max-restarts"},
    RecipeKey{"retry_delay", "retry-delay"},
    RecipeKey{kFaultTolerance, "max-restarts"},
};

const OptionSpec* option_of_key(const std::string& key) {
  const auto name = with_dashes(key);
  for (const auto& spec : option_table()) {
    if (spec.line_only || spec.name() == "config") continue;
    for (const auto& names : {spec.names, spec.file_keys})
      if (std::find(names.begin(), names.end(), name) != names.end()) return &spec;
  }
  return nullptr;
}

[[noreturn]] void throw_unknown_key(const YamlNode& key, const std::string& path) {
  const auto name = with_dashes(key.text);
  if (const auto* spec = find_option(name); spec && !spec->internal)
    throw UsageError(
        fmt::format("{}: \"{}\" cannot be set in launch:; use --{} on the command line",
                    at_line(path, key.line), shown(key.text), spec->name()));
  std::vector<std::string> known{kFaultTolerance};
  for (const auto& spec : option_table()) {
    if (spec.line_only || spec.name() == "config") continue;
    for (const auto& names : {spec.names, spec.file_keys})
      for (const auto& other : names) known.push_back(with_underscores(other));
  }
  const auto near = nearest(with_underscores(key.text), known);
  const auto hint = near.empty() ? "see mgpu-run --help for the options"
                                 : fmt::format("did you mean \"{}\"?", near);
  throw UsageError(fmt::format("{}: unknown key \"{}\" in launch:; {}", at_line(path, key.line),
                               shown(key.text), hint));
}

// Reads one launch: section, or the same options outside it, and rejects options that are set
// twice.
class Section {
 public:
  Section(const std::string& path, Source source) : path_(path), source_(source) {}

  LaunchFile read(const YamlNode& map) {
    for (std::size_t i = 0; i + 1 < map.items.size(); i += 2)
      read_pair(map.items[i], map.items[i + 1]);
    apply_fault_tolerance();
    return std::move(file_);
  }

  // Reads the keys of a recipe's top map that are in kRecipeKeys, and no others.
  LaunchFile read_recipe_keys(const YamlNode& top) {
    for (std::size_t i = 0; i + 1 < top.items.size(); i += 2) {
      const auto found = std::find_if(
          kRecipeKeys.begin(), kRecipeKeys.end(),
          [&](const RecipeKey& key) { return key.key == with_underscores(top.items[i].text); });
      if (found != kRecipeKeys.end()) read_recipe_key(*found, top.items[i], top.items[i + 1]);
    }
    apply_fault_tolerance();
    return std::move(file_);
  }

 private:
  void read_recipe_key(const RecipeKey& known, const YamlNode& key, const YamlNode& value) {
    const bool collection = value.kind == YamlNode::Kind::list || value.kind == YamlNode::Kind::map;
    if (value.kind == YamlNode::Kind::null || (collection && value.items.empty())) return;
    if (value.kind == YamlNode::Kind::scalar && (value.text.empty() || value.text == known.unset))
      return;
    const auto name = fmt::format("{}: {}", at_line(path_, key.line), shown(key.text));
    if (collection)  // such values are read in launch: only
      throw UsageError(
          fmt::format("{}: need a single value, not a {}; a list can be set in launch:", name,
                      value.kind == YamlNode::Kind::map ? "map" : "list"));
    if (with_underscores(key.text) == kFaultTolerance) return read_pair(key, value);
    take(find_option(known.option), key, value, name);
  }

  void read_pair(const YamlNode& key, const YamlNode& value) {
    if (key.kind != YamlNode::Kind::scalar)
      throw UsageError(fmt::format("{}: a key in launch: must be a word, such as nproc",
                                   at_line(path_, key.line)));
    const auto name = fmt::format("{}: {}", at_line(path_, key.line), shown(key.text));
    if (with_underscores(key.text) == kFaultTolerance) {
      tolerance_ = Setting{find_option("max-restarts"), source_, name, scalar_text(value, name)};
      return;
    }
    const auto* spec = option_of_key(key.text);
    if (!spec) throw_unknown_key(key, path_);
    take(spec, key, value, name);
  }

  void take(const OptionSpec* spec, const YamlNode& key, const YamlNode& value,
            const std::string& name) {
    const auto [first, fresh] = seen_.emplace(spec, key);
    if (!fresh)
      throw UsageError(fmt::format("{}: \"{}\" sets the same option as \"{}\" on line {}; keep one",
                                   at_line(path_, key.line), shown(key.text),
                                   shown(first->second.text), first->second.line));
    for (auto& text : option_texts(*spec, value, name))
      file_.settings.push_back({spec, source_, name, std::move(text)});
  }

  // enable_fault_tolerance: false means no restarts, whatever else the section sets; true means a
  // default number of restarts unless the section sets one.
  void apply_fault_tolerance() {
    if (!tolerance_) return;
    bool tolerant = false;
    try {
      tolerant = parse_bool(tolerance_->value);
    } catch (const UsageError& e) {
      throw UsageError(fmt::format("{}: {}", tolerance_->origin().text(), e.what()));
    }
    const auto* restarts = tolerance_->spec;
    if (tolerant && seen_.count(restarts) != 0) return;
    std::erase_if(file_.settings, [&](const Setting& s) { return s.spec == restarts; });
    tolerance_->value.assign(1, tolerant ? kRestartsWhenTolerant : '0');
    file_.settings.push_back(*tolerance_);
  }

  const std::string& path_;
  Source source_;
  std::map<const OptionSpec*, YamlNode> seen_;
  std::optional<Setting> tolerance_;
  LaunchFile file_;
};

// The launch: section of a file's top-level map, if there is one.
std::optional<LaunchFile> read_section(const YamlNode& top, const std::string& path,
                                       Source source) {
  for (std::size_t i = 0; i + 1 < top.items.size(); i += 2) {
    if (top.items[i].kind != YamlNode::Kind::scalar || top.items[i].text != kSection) continue;
    const YamlNode& value = top.items[i + 1];
    if (value.kind == YamlNode::Kind::null) return LaunchFile{};
    if (value.kind != YamlNode::Kind::map)
      throw UsageError(fmt::format("{}: launch: needs \"option: value\" lines below it",
                                   at_line(path, top.items[i].line)));
    return Section(path, source).read(value);
  }
  return {};
}

// An option that launch: sets is not taken from outside it.
LaunchFile recipe_of(const YamlNode& top, const std::string& path) {
  auto file = read_section(top, path, Source::recipe).value_or(LaunchFile{});
  auto outside = Section(path, Source::recipe).read_recipe_keys(top);
  std::erase_if(outside.settings, [&](const Setting& setting) {
    return std::any_of(file.settings.begin(), file.settings.end(),
                       [&](const Setting& inside) { return inside.spec == setting.spec; });
  });
  std::move(outside.settings.begin(), outside.settings.end(), std::back_inserter(file.settings));
  return file;
}

LaunchFile config_of(const YamlNode& top, const std::string& path, bool for_recipe) {
  if (auto file = read_section(top, path, Source::config)) return std::move(*file);
  if (is_accelerate_file(top)) return read_accelerate_file(top, path, for_recipe);
  throw UsageError(
      fmt::format("{}: neither a launch: section nor an accelerate config; put options "
                  "under launch:",
                  at_line(path, 1)));
}

}  // namespace

LaunchFile read_recipe(const std::string& path) {
  require_saved_file(path);
  return recipe_of(read_yaml(path, kSection), path);
}

LaunchFile read_config(const std::string& path, bool for_recipe, const Origin& origin) {
  return config_of(read_yaml(path, kSection, origin), path, for_recipe);
}

LaunchFile parse_recipe(const std::string& text, const std::string& path) {
  return recipe_of(parse_yaml(text, path, kSection), path);
}

LaunchFile parse_config(const std::string& text, const std::string& path, bool for_recipe) {
  return config_of(parse_yaml(text, path, kSection), path, for_recipe);
}

}  // namespace mgpu::launcher
