#include "runtime/config/planning/role_memory.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "runtime/config/grpo_values.hpp"
#include "runtime/config/planning/memory_model.hpp"
#include "runtime/config/planning/rollout_memory.hpp"
#include "runtime/model/linear_layers.hpp"

namespace mgpu::train {
namespace {

constexpr std::int64_t kReadTokens = 8192;  // tokens per forward pass of a reward model

std::int64_t bytes_of_number(const TrainConfig& config) {
  return config.dtype == Dtype::fp32 ? 4 : 2;
}

// The weights of a frozen model; `base`: quantized like the base model of the policy.
std::int64_t weights_of(const model::ModelConfig& model, const TrainConfig& config, bool base) {
  TrainConfig frozen;
  frozen.dtype = config.dtype;
  frozen.zero_stage = 0;
  frozen.load_in_4bit = base && config.load_in_4bit;
  frozen.load_in_8bit = base && config.load_in_8bit;
  frozen.use_bnb_nested_quant = config.use_bnb_nested_quant;
  return estimate_memory(model, frozen, 1).of(MemoryPart::weights);
}

// The activations of a forward pass: those of one layer, or those of `head_rows` rows of logits
// with log-probabilities, if these are more.
std::int64_t forward_bytes(const model::ModelConfig& m, std::int64_t tokens, std::int64_t number,
                           std::int64_t head_rows) {
  const auto heads = m.heads * m.head_dim, all = heads + 2 * m.kv_heads * m.head_dim;
  const auto layer = tokens * number * (4 * m.hidden_size + all + heads + 3 * m.intermediate_size);
  const auto head = std::min(tokens, head_rows) * m.vocab_size * (number + 4);
  return std::max(layer, head);
}

// Memory outside the allocator: NCCL's channels take as much as CUDA's context.
std::int64_t outside_bytes(std::int64_t ranks) {
  return kContextBytes * (ranks > 1 ? 2 : 1);
}

std::int64_t usable(std::int64_t gpu_bytes, std::int64_t ranks) {
  return static_cast<std::int64_t>(static_cast<double>(gpu_bytes - outside_bytes(ranks)) / kMargin);
}

// Adds up the memory of all roles on all GPUs.
class RoleAccounting {
 public:
  explicit RoleAccounting(const RoleRequest& request)
      : request_(request),
        ranks_(static_cast<std::int64_t>(request.roles.policy.size())),
        number_(bytes_of_number(request.config)),
        tokens_(micro_batch_tokens(request.config) > 0
                    ? most_micro_batch_tokens(request.config)
                    : request.config.per_device_train_batch_size * request.config.max_length) {}

  void policy() {
    using enum MemoryPart;
    const auto& config = request_.config;
    const auto training = estimate_memory(request_.model, config, ranks_);
    const auto holds = training.of(weights) + training.of(gradients) + training.of(optimizer);
    for (const auto gpu : request_.roles.policy)
      add({gpu, kPolicy, "training", holds, training.allocated() - holds});
  }

  // Called after all others: as many concurrent sequences as the job has, or as fit.
  void rollout() {
    const auto& config = request_.config;
    const bool gathers = ranks_ > 1 && config.zero_stage == 3;
    const auto whole = gathers ? weights_of(request_.model, config, true) -
                                     host_embedding_bytes(request_.model, config)
                               : 0;
    if (GrpoValues(config).uses_server()) return with_server(whole);
    const auto reads = std::max(kReadTokens, config.max_length);
    const auto extra = whole + forward_bytes(request_.model, reads, number_, 0) + adapters();
    // Logits of the generation steps, and those after the prompts.
    const bool penalty = GrpoValues(config).number("repetition_penalty").value_or(1) != 1;
    const auto logit = GrpoValues(config).flag("cast_lm_head_to_fp32") ? 4 : number_;
    const auto logits = request_.model.vocab_size * (penalty ? 8 * logit + 2 : 3 * logit);
    const RolloutRequest wanted{
        .completions = (request_.sizes.prompts() + ranks_ - 1) / ranks_ * request_.sizes.group,
        .longest = config.max_length + kMostBurst,
        .logits = logits,
        .page = cache_page(request_.model, number_)};
    auto size = rollout_size(wanted, 0);
    if (request_.gpu_bytes > 0)
      for (const auto gpu : request_.roles.policy) {
        // A lack of memory is reported later: then one sequence is planned.
        const auto fits = rollout_size(wanted, std::max<std::int64_t>(1, room_left(gpu) - extra));
        if (fits.bytes < size.bytes) size = fits;
      }
    const auto tokens = (size.pages - 1) * wanted.page.tokens;
    const auto text =
        size.pages < rollout_memory(size.sequences, wanted.longest, wanted.page).pages
            ? fmt::format("KV cache of {} tokens for up to {} sequences", tokens, size.sequences)
            : fmt::format("KV cache for {} sequences of {} tokens", size.sequences,
                          config.max_length);
    for (const auto gpu : request_.roles.policy)
      add({gpu, kRollout, text, 0, size.bytes + extra, size.sequences, size.pages});
  }

  void reference() {
    const auto& config = request_.config;
    if (GrpoValues(config).number("beta").value_or(0) == 0) return;
    const auto& role = request_.roles.reference;
    const bool copy = role.has_own_gpu() || !config.use_peft || !config.adapter_path.empty() ||
                      !config.lora_modules_to_save.empty();
    const auto weights = copy ? weights_of(request_.model, config, true) : 0;
    frozen(role, kReference, "scoring", weights,
           forward_bytes(request_.model, tokens_, number_, request_.config.head_rows));
  }

  void reward_models() {
    for (const auto& reward : request_.reward_models) {
      const auto& role = request_.roles.reward;
      const auto name = "reward " + reward.name;
      if (const auto& whole = reward.encoder) {
        const auto& policy = request_.roles.policy;
        for (const auto gpu : role.has_own_gpu() ? std::vector{*role.gpu} : policy)
          add({gpu, name, "scoring", whole->weights, whole->forward});
      } else {
        frozen(role, name, "scoring", weights_of(reward.model, request_.config, false),
               forward_bytes(reward.model, kReadTokens, number_, 0));
      }
    }
  }

  // The completions of a server are scored once more by the policy. Without an adapter all weights
  // are sent in packs.
  void with_server(std::int64_t whole) {
    constexpr std::int64_t kPack = 1LL << 30;
    const auto& m = request_.model;
    for (const auto gpu : request_.roles.policy)
      add({gpu, kPolicy, "scoring", 0,
           whole + forward_bytes(m, tokens_, number_, request_.config.head_rows)});
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

  // A copy of the adapters of all layers, laid out for small batches. Where decoding adds them in
  // parts there is none, which depends on the GPU.
  std::int64_t adapters() const {
    if (!request_.config.use_peft) return 0;
    const auto& m = request_.model;
    const auto layers = model::linear_layers(m);
    std::int64_t outputs = 0;  // each adapter has a column for all outputs of its product
    for (const auto& adapted : layers)
      for (const auto& layer : layers)
        if (adapted.adapters && layer.product == adapted.product) outputs += layer.out;
    return m.layers * request_.config.lora_r * number_ * outputs;
  }

  // What is left on a GPU for the active role, beside what all roles hold there.
  std::int64_t room_left(std::int64_t gpu) const {
    std::int64_t holds = 0;
    for (const auto& line : lines_)
      if (line.gpu == gpu) holds += line.holds;
    return usable(request_.gpu_bytes, ranks_) - holds;
  }

  // A frozen model. If it is sharded, its weights are gathered while it is active.
  void frozen(const Role& role, const std::string& name, const char* work, std::int64_t weights,
              std::int64_t reads) {
    if (role.has_own_gpu()) {
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
  RoleAccounting accounting(request);
  accounting.policy();
  accounting.reference();
  accounting.reward_models();
  accounting.rollout();
  return accounting.take();
}

std::int64_t peak_bytes(const std::vector<RoleMemory>& roles, std::int64_t gpu) {
  std::int64_t holds = 0, most = 0;
  for (const auto& role : roles) {
    if (role.gpu != gpu) continue;
    holds += role.holds;
    most = std::max(most, role.at_work);
  }
  return holds + most;
}

std::int64_t concurrent_sequences(const std::vector<RoleMemory>& roles) {
  std::int64_t sequences = 0;
  for (const auto& role : roles) sequences = std::max(sequences, role.sequences);
  return sequences;
}

std::int64_t cache_pages(const std::vector<RoleMemory>& roles) {
  std::int64_t pages = 0;
  for (const auto& role : roles) pages = std::max(pages, role.pages);
  return pages;
}

std::int64_t held_by_other_roles(const std::vector<RoleMemory>& roles, std::int64_t gpu) {
  std::int64_t holds = 0;
  for (const auto& role : roles)
    if (role.gpu == gpu && role.role != kPolicy) holds += role.holds;
  return holds;
}

std::int64_t needed(const std::vector<RoleMemory>& roles, std::int64_t gpu, std::int64_t ranks) {
  return static_cast<std::int64_t>(static_cast<double>(peak_bytes(roles, gpu)) * kMargin) +
         outside_bytes(ranks);
}

}  // namespace mgpu::train
