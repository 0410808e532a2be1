#include "runtime/config/planning/role_memory.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "runtime/config/grpo_values.hpp"
#include "runtime/config/planning/memory_model.hpp"
#include "runtime/config/planning/rollout_memory.hpp"

namespace mgpu::train {
namespace {

constexpr std::int64_t kReadTokens = 8192;            // that a reward model reads at a time
constexpr std::int64_t kHeadRows = 4096;              // rows of logits that exist at a time
constexpr std::int64_t kContext = 512 * (1LL << 20);  // CUDA's, on a GPU
constexpr double kMargin = 1.05;                      // for what the allocator cannot join up

std::int64_t bytes_of_number(const TrainConfig& config) {
  return config.dtype == Dtype::fp32 ? 4 : 2;
}

// The weights of a model that does not learn, as they are kept; `four_bit` as the policy's base is.
std::int64_t weights_of(const model::ModelConfig& model, const TrainConfig& config, bool four_bit) {
  TrainConfig frozen;
  frozen.dtype = config.dtype;
  frozen.zero_stage = 0;
  frozen.load_in_4bit = four_bit;
  frozen.use_bnb_nested_quant = config.use_bnb_nested_quant;
  return estimate_memory(model, frozen, 1).of(MemoryPart::weights);
}

// One layer's forward pass, and the logits of some rows with their scores.
std::int64_t reading(const model::ModelConfig& m, std::int64_t tokens, std::int64_t number,
                     bool logits) {
  const auto heads = m.heads * m.head_dim, all = heads + 2 * m.kv_heads * m.head_dim;
  const auto layer = tokens * number * (4 * m.hidden_size + all + heads + 3 * m.intermediate_size);
  const auto head = logits ? std::min(tokens, kHeadRows) * m.vocab_size * (number + 4) : 0;
  return std::max(layer, head);
}

// Outside of the allocator: NCCL's channels take as much as CUDA.
std::int64_t outside(std::int64_t ranks) {
  return kContext * (ranks > 1 ? 2 : 1);
}

std::int64_t usable(std::int64_t gpu_bytes, std::int64_t ranks) {
  return static_cast<std::int64_t>(static_cast<double>(gpu_bytes - outside(ranks)) / kMargin);
}

// Writes down who has what, GPU by GPU.
class Books {
 public:
  explicit Books(const RoleRequest& request)
      : request_(request),
        ranks_(static_cast<std::int64_t>(request.roles.policy.size())),
        number_(bytes_of_number(request.config)),
        tokens_(request.config.per_device_train_batch_size * request.config.max_length) {}

  void policy() {
    using enum MemoryPart;
    const auto& config = request_.config;
    const auto learning = estimate_memory(request_.model, config, ranks_);
    const auto holds = learning.of(weights) + learning.of(gradients) + learning.of(optimizer);
    for (const auto gpu : request_.roles.policy)
      add({gpu, kPolicy, "learning", holds, learning.allocated() - holds});
  }

  // After all others: as many sequences at a time as are wanted, or as there is room for.
  void rollout() {
    const auto& config = request_.config;
    const bool gathers = ranks_ > 1 && config.zero_stage == 3;
    const auto whole = gathers ? weights_of(request_.model, config, config.load_in_4bit) : 0;
    if (GrpoValues(config).uses_server()) return beside_server(whole);
    const auto reads = std::max(kReadTokens, config.max_length);
    const auto besides = whole + reading(request_.model, reads, number_, false) + adapters();
    // Logits of the steps, and those behind prompts that have been read.
    const bool penalty = GrpoValues(config).number("repetition_penalty").value_or(1) != 1;
    const auto logits = request_.model.vocab_size * (penalty ? 8 * number_ + 2 : 3 * number_);
    const auto page = cache_page(request_.model, number_);
    const auto longest = config.max_length + kMostBurst;
    const auto one = rollout_memory(1, longest, page).bytes + logits;
    auto sequences = std::min(
        kMostSequences, (request_.sizes.prompts() + ranks_ - 1) / ranks_ * request_.sizes.group);
    if (request_.gpu_bytes > 0)
      for (const auto gpu : request_.roles.policy)
        sequences = std::min(sequences, (room_left(gpu) - besides) / one);
    sequences = std::max<std::int64_t>(1, sequences);
    for (const auto gpu : request_.roles.policy)
      add({gpu, kRollout,
           fmt::format("a cache for {} sequences of {} tokens", sequences, config.max_length), 0,
           rollout_memory(sequences, longest, page).bytes + sequences * logits + besides,
           sequences});
  }

  void reference() {
    const auto& config = request_.config;
    if (GrpoValues(config).number("beta").value_or(0) == 0) return;
    const auto& role = request_.roles.reference;
    const bool copy = role.held() || !config.use_peft || !config.adapter_path.empty() ||
                      !config.lora_modules_to_save.empty();
    const auto weights = copy ? weights_of(request_.model, config, config.load_in_4bit) : 0;
    frozen(role, kReference, "judging", weights, reading(request_.model, tokens_, number_, true));
  }

  void judges() {
    for (const auto& judge : request_.judges)
      frozen(request_.roles.reward, "reward " + judge.name, "judging",
             weights_of(judge.model, request_.config, false),
             reading(judge.model, kReadTokens, number_, false));
  }

  // Its completions are read once more, and without adapters all weights go there in packs.
  void beside_server(std::int64_t whole) {
    constexpr std::int64_t kPack = 1LL << 30;
    const auto& m = request_.model;
    for (const auto gpu : request_.roles.policy)
      add({gpu, kPolicy, "looking back", 0, whole + reading(m, tokens_, number_, true)});
    if (!request_.config.use_peft)
      add({request_.roles.policy.front(), kPolicy, "sending weights", 0,
           kPack + 2 * m.vocab_size * m.hidden_size * number_});
  }

  std::vector<RoleMemory> take() {
    std::stable_sort(lines_.begin(), lines_.end(),
                     [](const RoleMemory& a, const RoleMemory& b) { return a.gpu < b.gpu; });
    return std::move(lines_);
  }

 private:
  void add(RoleMemory line) { lines_.push_back(std::move(line)); }

  // Of all layers, laid out for small batches.
  std::int64_t adapters() const {
    if (!request_.config.use_peft) return 0;
    const auto& m = request_.model;
    const auto qkv = (m.heads + 2 * m.kv_heads) * m.head_dim;
    return m.layers * request_.config.lora_r * number_ *
           (3 * qkv + 2 * m.hidden_size + 4 * m.intermediate_size);
  }

  // For who works on a GPU, beside what all hold there.
  std::int64_t room_left(std::int64_t gpu) const {
    std::int64_t holds = 0;
    for (const auto& line : lines_)
      if (line.gpu == gpu) holds += line.holds;
    return usable(request_.gpu_bytes, ranks_) - holds;
  }

  // Spread, its weights are gathered while it works.
  void frozen(const Role& role, const std::string& name, const char* work, std::int64_t weights,
              std::int64_t reads) {
    if (role.held()) {
      add({*role.gpu, name, work, weights, reads});
      return;
    }
    const bool gathers = ranks_ > 1;
    for (const auto gpu : request_.roles.policy)
      add({gpu, name, work, gathers ? (weights + ranks_ - 1) / ranks_ : weights,
           reads + (gathers ? weights : 0)});
  }

  const RoleRequest& request_;
  std::int64_t ranks_, number_, tokens_;
  std::vector<RoleMemory> lines_;
};

}  // namespace

std::vector<RoleMemory> role_memory(const RoleRequest& request) {
  Books books(request);
  books.policy();
  books.reference();
  books.judges();
  books.rollout();
  return books.take();
}

std::int64_t peak_of(const std::vector<RoleMemory>& roles, std::int64_t gpu) {
  std::int64_t holds = 0, most = 0;
  for (const auto& role : roles) {
    if (role.gpu != gpu) continue;
    holds += role.holds;
    most = std::max(most, role.at_work);
  }
  return holds + most;
}

std::int64_t sequences_at_a_time(const std::vector<RoleMemory>& roles) {
  std::int64_t sequences = 0;
  for (const auto& role : roles) sequences = std::max(sequences, role.sequences);
  return sequences;
}

std::int64_t held_beside_policy(const std::vector<RoleMemory>& roles, std::int64_t gpu) {
  std::int64_t holds = 0;
  for (const auto& role : roles)
    if (role.gpu == gpu && role.role != kPolicy) holds += role.holds;
  return holds;
}

std::int64_t needed(const std::vector<RoleMemory>& roles, std::int64_t gpu, std::int64_t ranks) {
  return static_cast<std::int64_t>(static_cast<double>(peak_of(roles, gpu)) * kMargin) +
         outside(ranks);
}

}  // namespace mgpu::train
