#include "runtime/rl/reward_model_files.hpp"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <stdexcept>

#include "rendezvous/base/contained_file.hpp"
#include "runtime/checkpoint/hub_cache.hpp"
#include "runtime/hub/repository.hpp"
#include "runtime/model/read_config.hpp"
#include "runtime/rewards/catalog.hpp"

namespace mgpu::rl {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLongestConfig = 1 << 20;

// A name such as owner/model, which is not a path, a program or an address.
bool is_hub_name(const std::string& entry) {
  const auto slash = entry.find('/');
  const auto allowed = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.';
  };
  return slash != std::string::npos && slash > 0 && slash + 1 < entry.size() && entry[0] != '.' &&
         std::all_of(entry.begin(), entry.begin() + static_cast<std::ptrdiff_t>(slash), allowed) &&
         std::all_of(entry.begin() + static_cast<std::ptrdiff_t>(slash) + 1, entry.end(), allowed);
}

bool is_in_hub_cache(const std::string& entry) {
  try {
    checkpoint::resolve_model_config(entry);
    return true;
  } catch (const std::runtime_error&) {
    return false;
  }
}

}  // namespace

std::string reward_model_config(const std::string& folder) {
  return rendezvous::read_contained_file(folder, "config.json", kLongestConfig);
}

bool is_reward_model(const std::string& entry, const rewards::Settings& settings) {
  const auto names = rewards::reward_names();
  if (std::find(names.begin(), names.end(), entry) != names.end()) return false;
  std::error_code ignored;  // a cmd: entry may be longer than a path can be
  if (settings.reward_rules.contains(entry)) return false;
  return fs::exists(fs::path(entry) / "config.json", ignored) || hub::is_model_name(entry) ||
         (is_hub_name(entry) && is_in_hub_cache(entry));
}

std::string reward_model_name(const std::string& entry) {
  auto path = fs::path(entry).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  return path.filename().string();
}

train::RoleRequest::RewardModel reward_model_memory(const std::string& entry) {
  const auto folder = checkpoint::resolve_model_config(entry);
  const auto text = reward_model_config(folder);
  train::RoleRequest::RewardModel memory{reward_model_name(entry), {}, {}};
  if (encoder::is_deberta(text, folder + "/config.json")) {
    memory.encoder = encoder_memory(encoder::read_deberta_config(text, folder + "/config.json"));
  } else {
    memory.model = model::read_model_config(folder);
  }
  return memory;
}

train::RoleRequest::RewardModel::Encoder encoder_memory(const encoder::DebertaConfig& config) {
  const auto tokens = std::max(static_cast<std::int64_t>(kMaxPaddedTokens), config.longest);
  return {.weights = encoder::deberta_weight_bytes(config),
          .forward = encoder::deberta_forward_bytes(config, tokens)};
}

}  // namespace mgpu::rl
