#include "runtime/train/same_inputs.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>

#include "rendezvous/base/host_name.hpp"
#include "rendezvous/base/input_error.hpp"
#include "runtime/comm/text.hpp"
#include "runtime/config/keys/key_table.hpp"
#include "runtime/data/digest.hpp"

namespace mgpu::train {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMostDifferences = 5;  // in a message
constexpr const char* kWhat = "all-gather of recipes";

// Paths: what is in the files is compared, or rank 0 alone uses them. And what may depend on the
// machine.
constexpr std::array<std::string_view, 25> kOfOneMachine = {"adapter_path",
                                                            "ada_path",
                                                            "cf_path",
                                                            "chat_template",
                                                            "dataloader_pin_memory",
                                                            "dataset_dir",
                                                            "dataset_name",
                                                            "dataset_num_proc",
                                                            "dataset_prepared_path",
                                                            "eval_dataset",
                                                            "hub_token",
                                                            "info_file",
                                                            "logging_dir",
                                                            "model_name_or_path",
                                                            "offline",
                                                            "output_dir",
                                                            "overwrite_output_dir",
                                                            "report_to",
                                                            "resume_from_checkpoint",
                                                            "reward_model",
                                                            "reward_python",
                                                            "reward_sandbox",
                                                            "run_name",
                                                            "tokenizer_path",
                                                            "trace_dir"};

bool is_of_one_machine(const KeySpec& key) {
  return key.group == KeyGroup::launcher || key.name.starts_with("vllm_server") ||
         std::ranges::find(kOfOneMachine, key.name) != kOfOneMachine.end();
}

std::string name_of(const RankInputs& rank) {
  return rank.host.empty() ? fmt::format("rank {}", rank.rank)
                           : fmt::format("rank {} on {}", rank.rank, rank.host);
}

}  // namespace

std::optional<std::string> difference_of(const std::vector<RankInputs>& ranks) {
  const auto& first = ranks.front();
  const auto other = std::ranges::find_if(
      ranks, [&](const RankInputs& rank) { return rank.inputs != first.inputs; });
  if (other == ranks.end()) return std::nullopt;
  auto differences = differences_between(first.inputs, other->inputs);
  if (const auto count = differences.size(); count > kMostDifferences) {
    differences.resize(kMostDifferences);
    differences.push_back(fmt::format("{} more", count - kMostDifferences));
  }
  return fmt::format(
      "{} and {} do not train on the same: {}; start all nodes with the same recipe, data and "
      "model",
      name_of(first), name_of(*other), fmt::join(differences, ", "));
}

Fingerprint shared_settings(const TrainConfig& config) {
  Fingerprint settings;
  for (const auto& key : config_keys()) {
    if (key.use == KeyUse::used && key.field.show && !is_of_one_machine(key))
      settings[key.name] = key.field.show(config);
  }
  return settings;
}

void require_same_inputs(const Fingerprint& mine, comm::Comm& comm, c10::Device device) {
  if (comm.world() == 1) return;
  // Usually they are the same, so that digests suffice.
  const auto own = Json(mine).dump(-1, ' ', false, Json::error_handler_t::replace);
  const auto digests = comm::gather_texts(comm, data::sha256(own), device, kWhat);
  if (std::ranges::count(digests, digests.front()) == std::ssize(digests)) return;
  std::vector<RankInputs> ranks;
  const auto texts = comm::gather_texts(
      comm, Json{{"host", rendezvous::host_name()}, {"inputs", Json::parse(own)}}.dump(), device,
      kWhat);
  for (const auto& text : texts) {
    const auto rank = Json::parse(text);
    ranks.push_back({static_cast<int>(ranks.size()), rank.at("host"), rank.at("inputs")});
  }
  if (const auto difference = difference_of(ranks)) throw rendezvous::InputError(*difference);
}

}  // namespace mgpu::train
