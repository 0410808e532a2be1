#include "launcher/plan/dry_run.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "launcher/devices/system_tree.hpp"
#include "launcher/nodes/master_address.hpp"
#include "rendezvous/base/text_table.hpp"
#include "rendezvous/contract.hpp"

namespace mgpu::launcher {

using rendezvous::table_cell;
using rendezvous::text_table;
namespace {

namespace fs = std::filesystem;
namespace variable = rendezvous::variable;
using Rows = std::vector<std::vector<std::string>>;

constexpr const char* kChosenLater = "chosen at start";

std::string port_text(const Attempt& attempt) {
  return attempt.master_port == 0 ? kChosenLater : std::to_string(attempt.master_port);
}

// A variable's value in a rank; nullopt when it is removed or not changed.
std::optional<std::string> value_in(const RankSpec& spec, const std::string& name,
                                    const Attempt& attempt) {
  for (const auto& [known, value] : spec.env)
    if (known == name)
      return name == variable::kMasterPort && attempt.master_port == 0 && value == "0"
                 ? kChosenLater
                 : value;
  return std::nullopt;
}

std::vector<std::string> names_of(const std::vector<RankSpec>& specs) {
  std::vector<std::string> names;
  for (const auto& spec : specs)
    for (const auto& [name, value] : spec.env)
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  return names;
}

std::string command_text(const RankSpec& spec) {
  std::vector<std::string> words;
  for (const auto& word : spec.argv) words.push_back(shell_word(word));
  return fmt::format("{}", fmt::join(words, " "));
}

std::string commands_text(const std::vector<RankSpec>& specs) {
  const auto& first = specs.front();
  const bool same = std::all_of(specs.begin(), specs.end(),
                                [&](const auto& spec) { return spec.argv == first.argv; });
  if (same) return fmt::format("\ncommand of every rank\n  {}\n", command_text(first));
  Rows rows;
  for (const auto& spec : specs)
    rows.push_back({fmt::format("  rank {}", spec.rank), command_text(spec)});
  return "\ncommand by rank\n" + text_table(rows);
}

std::string environment_text(const std::vector<RankSpec>& specs, const Attempt& attempt) {
  std::string shared = "\nenvironment of every rank\n";
  Rows own{{"  rank"}};
  for (const auto& spec : specs) own.push_back({fmt::format("  {}", spec.rank)});
  for (const auto& name : names_of(specs)) {
    const auto value = value_in(specs.front(), name, attempt);
    const bool same = std::all_of(specs.begin(), specs.end(), [&](const auto& spec) {
      return value_in(spec, name, attempt) == value;
    });
    if (same) {
      shared += value ? fmt::format("  {}={}\n", name,
                                    *value == kChosenLater ? *value : shell_word(*value))
                      : fmt::format("  {} is removed\n", name);
      continue;
    }
    own[0].push_back(name);
    for (size_t i = 0; i < specs.size(); ++i) {
      const auto mine = value_in(specs[i], name, attempt);
      own[i + 1].push_back(mine ? shell_word(*mine) : "-");
    }
  }
  return own[0].size() > 1 ? shared + "\nenvironment by rank\n" + text_table(own) : shared;
}

nlohmann::ordered_json json_of(const RankSpec& spec, const Attempt& attempt) {
  auto env = nlohmann::ordered_json::object();
  for (const auto& [name, ignored] : spec.env) {
    const auto value = value_in(spec, name, attempt);
    env[name] = value ? nlohmann::ordered_json(*value) : nullptr;
  }
  return {{"rank", spec.rank},
          {"local_rank", spec.local_rank},
          {"argv", spec.argv},
          {"env", env},
          {"device", spec.device},
          {"cores", id_list_text(spec.binding.cpus)},
          {"memory_nodes", id_list_text(spec.binding.memory_nodes)},
          {"log_dir", spec.log_dir}};
}

}  // namespace

std::string shell_word(const std::string& word) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=,+@%^";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  const bool control =
      std::any_of(word.begin(), word.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; });
  std::string out = control ? "$'" : "'";
  for (const unsigned char c : word) {
    if (control && (c < 0x20 || c == 0x7f))
      out += fmt::format("\\x{:02x}", c);
    else if (control && (c == '\'' || c == '\\'))
      (out += '\\') += static_cast<char>(c);
    else if (c == '\'')
      out += "'\\''";
    else
      out += static_cast<char>(c);
  }
  return out + "'";
}

namespace {

// As LogFolder chooses it; plans may not include the output.
fs::path temporary_folder() {
  std::error_code failed;
  const char* tmpdir = std::getenv("TMPDIR");
  return tmpdir && fs::is_directory(tmpdir, failed) ? fs::absolute(tmpdir, failed) : "/tmp";
}

}  // namespace

Attempt planned_attempt(const Options& options) {
  const MasterAddress master = master_address(options);
  Attempt attempt{
      .master_addr = master.host, .master_port = master.port, .leader_addr = master.host};
  // Which node leads, and the port of the others' relays, are known at the start.
  if (options.max_nodes > 1 && !options.standalone && !options.direct_store && !options.rank0_store)
    attempt.master_addr = "127.0.0.1", attempt.master_port = 0;
  if (options.log_dir == "/dev/null") return attempt;
  std::error_code failed;
  const auto folder = options.log_dir
                          ? fs::absolute(*options.log_dir, failed) / options.log_folder_name()
                          : temporary_folder() / "mgpu";
  if (!failed) attempt.log_dir = folder.string() + "_XXXXXX/attempt_0";
  return attempt;
}

std::string dry_run_text(const Options& options, const Placement& placement, const Attempt& attempt,
                         const std::vector<RankSpec>& specs) {
  std::string text = fmt::format(
      "{} of {} ranks, on node {} of {}\nmaster {}, port {}, store served by {}\n", specs.size(),
      placement.world_size, placement.node_rank, placement.nodes, attempt.master_addr,
      port_text(attempt), options.rank0_store ? "rank 0" : "mgpu-run");
  if (specs.empty()) return text;
  Rows rows{{"rank", "local rank", "device", "cores", "memory", "logs"}};
  for (const auto& spec : specs)
    rows.push_back({std::to_string(spec.rank), std::to_string(spec.local_rank), spec.device,
                    table_cell(id_list_text(spec.binding.cpus)),
                    table_cell(id_list_text(spec.binding.memory_nodes)), table_cell(spec.log_dir)});
  return text + "\n" + text_table(rows) + commands_text(specs) + environment_text(specs, attempt);
}

std::string scheduler_text(const SchedulerJob& scheduler) {
  if (scheduler.found.empty()) return {};
  Rows rows;
  for (const auto& [what, value, from] : scheduler.found)
    rows.push_back({"  " + what, value, from});
  return fmt::format("{} provides\n{}\n", name_of(scheduler.kind), text_table(rows));
}

std::string dry_run_json(const Options& options, const Placement& placement, const Attempt& attempt,
                         const std::vector<RankSpec>& specs) {
  auto ranks = nlohmann::ordered_json::array();
  for (const auto& spec : specs) ranks.push_back(json_of(spec, attempt));
  nlohmann::ordered_json all = {
      {"node_rank", placement.node_rank},
      {"nodes", placement.nodes},
      {"world_size", placement.world_size},
      {"master_addr", attempt.master_addr},
      {"master_port", attempt.master_port == 0 ? nlohmann::ordered_json(nullptr)
                                               : nlohmann::ordered_json(attempt.master_port)},
      {"store", options.rank0_store ? "rank 0" : "mgpu-run"},
      {"ranks", ranks}};
  for (const auto& [what, value, from] : options.scheduler.found)
    all["cluster"].push_back({{"what", what}, {"value", value}, {"from", from}});
  return all.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace mgpu::launcher
