#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <stdexcept>

#include "rendezvous/base/input_error.hpp"
#include "runtime/checkpoint/json_text.hpp"
#include "runtime/checkpoint/name_pattern.hpp"
#include "runtime/checkpoint/peft.hpp"

namespace mgpu::checkpoint {

namespace {

constexpr std::string_view kBase = "base_model.model.";
constexpr std::string_view kPartA = ".lora_A.weight", kPartB = ".lora_B.weight";
constexpr std::string_view kMagnitude = ".lora_magnitude_vector";
constexpr std::string_view kWeight = ".weight";
constexpr std::string_view kHead = "lm_head";

// "q_proj" matches every module with this suffix, "layers.0.self_attn.q_proj" only one.
bool names(std::string_view end, std::string_view module) {
  return module == end || (module.ends_with(end) && module.size() > end.size() &&
                           module[module.size() - end.size() - 1] == '.');
}

std::string_view module_of(std::string_view parameter) {
  return parameter.substr(0, parameter.rfind('.'));
}

std::string_view last_part(std::string_view module) {
  return module.substr(module.rfind('.') + 1);
}

// Embeddings are matrices too, but not linear layers.
bool is_linear(const TensorShape& tensor) {
  return tensor.shape.size() == 2 && tensor.name.ends_with(kWeight) &&
         last_part(module_of(tensor.name)) != "embed_tokens";
}

std::string list_of_linears(const std::vector<TensorShape>& model) {
  std::set<std::string_view> all;
  for (const TensorShape& tensor : model)
    if (is_linear(tensor)) all.insert(last_part(module_of(tensor.name)));
  return fmt::format("{}", fmt::join(all, ", "));
}

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  return text;
}

// Matches modules against a config's target_modules.
class Targets {
 public:
  explicit Targets(const LoraConfig& config) : config_(config) {
    all_linear_ = lower(config.target_pattern) == "all-linear";
    if (!all_linear_ && !config.target_pattern.empty()) pattern_.emplace(config.target_pattern);
  }

  bool contain(std::string_view module) {
    if (all_linear_) return module != kHead;
    if (pattern_) return pattern_->matches(module);
    const auto named = [&](const std::string& end) { return names(end, module); };
    const auto found = std::ranges::find_if(config_.target_modules, named);
    for (const std::string& end : config_.target_modules)
      if (named(end)) used_.insert(end);
    return found != config_.target_modules.end();
  }

  // A target that has not matched any linear layer, so that typos are reported.
  const std::string* unused() const {
    for (const std::string& end : config_.target_modules)
      if (!used_.contains(end)) return &end;
    return nullptr;
  }

 private:
  const LoraConfig& config_;
  bool all_linear_ = false;
  std::optional<NamePattern> pattern_;
  std::set<std::string> used_;
};

// The value of each target in rank_pattern or alpha_pattern. PEFT uses the first matching pattern
// in the file, but the order of an object's keys is not reliable. Each pattern is compiled once.
template <class Value>
std::vector<Value> in_patterns(const std::map<std::string, Value>& patterns,
                               const std::vector<LoraTarget>& targets, Value otherwise,
                               const char* key) {
  std::vector<std::optional<Value>> found(targets.size());
  for (const auto& [text, value] : patterns) {
    const NamePattern pattern("(.*\\.)?(" + text + ")");
    for (std::size_t i = 0; i < targets.size(); ++i) {
      if (!pattern.matches(targets[i].module)) continue;
      if (found[i] && *found[i] != value)
        throw rendezvous::InputError(fmt::format(
            "{}: several patterns with different values match {}", key, targets[i].module));
      found[i] = value;
    }
  }
  std::vector<Value> values;
  for (const auto& one : found) values.push_back(one.value_or(otherwise));
  return values;
}

void set_ranks(std::vector<LoraTarget>& targets, const LoraConfig& config) {
  const auto ranks = in_patterns(config.rank_pattern, targets, config.r, "rank_pattern");
  const auto alphas = in_patterns(config.alpha_pattern, targets, config.alpha, "alpha_pattern");
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const auto divisor = static_cast<double>(ranks[i]);
    targets[i].rank = ranks[i];
    targets[i].scale = alphas[i] / (config.use_rslora ? std::sqrt(divisor) : divisor);
  }
}

bool is_saved_whole(const LoraConfig& config, std::string_view module) {
  return std::ranges::any_of(config.modules_to_save,
                             [&](const std::string& end) { return names(end, module); });
}

}  // namespace

std::vector<LoraTarget> lora_targets(const LoraConfig& config,
                                     const std::vector<TensorShape>& model) {
  Targets targets(config);
  std::vector<LoraTarget> all;
  for (const TensorShape& tensor : model) {
    const std::string module(module_of(tensor.name));
    if (!is_linear(tensor)) {
      if (last_part(module) == "embed_tokens" && config.target_pattern.empty() &&
          targets.contain(module))
        throw rendezvous::InputError(
            "target_modules: adapters of embed_tokens are not supported; list it in "
            "modules_to_save to train it in full");
      continue;
    }
    if (!targets.contain(module) || is_saved_whole(config, module)) continue;
    all.push_back({.module = module, .out = tensor.shape[0], .in = tensor.shape[1]});
  }
  set_ranks(all, config);
  if (const std::string* unused = targets.unused())
    throw rendezvous::InputError(
        fmt::format("target_modules: {} is not a linear layer of this model; it has {}",
                    in_quotes(*unused), list_of_linears(model)));
  if (all.empty())
    throw rendezvous::InputError(
        fmt::format("target_modules: {} matches no linear layer of this model; it has {}",
                    in_quotes(config.target_pattern), list_of_linears(model)));
  return all;
}

std::vector<TensorShape> saved_parameters(const LoraConfig& config,
                                          const std::vector<TensorShape>& model) {
  std::vector<TensorShape> saved;
  for (const TensorShape& tensor : model)
    if (is_saved_whole(config, module_of(tensor.name))) saved.push_back(tensor);
  for (const std::string& end : config.modules_to_save)
    if (std::ranges::none_of(
            saved, [&](const TensorShape& tensor) { return names(end, module_of(tensor.name)); }))
      throw rendezvous::InputError(fmt::format(
          "modules_to_save: {} has no parameters of its own in this model{}", in_quotes(end),
          end == kHead ? "; its head is tied to the embedding: use embed_tokens" : ""));
  return saved;
}

std::string adapter_key(const AdapterKey& key) {
  using enum AdapterKey::Part;
  const std::string_view end = key.part == lora_a      ? kPartA
                               : key.part == lora_b    ? kPartB
                               : key.part == magnitude ? kMagnitude
                                                       : "";
  return fmt::format("{}{}{}", kBase, key.name, end);
}

AdapterKey parse_adapter_key(std::string_view name) {
  const auto refuse = [&](const char* why) {
    throw rendezvous::InputError(fmt::format("adapter: tensor {} {}", in_quotes(name), why));
  };
  if (!name.starts_with(kBase)) refuse("does not begin with 'base_model.model.'");
  const std::string_view rest = name.substr(kBase.size());
  const auto without = [&](std::string_view end) {
    return std::string(rest.substr(0, rest.size() - end.size()));
  };
  if (rest.ends_with(kPartA)) return {AdapterKey::Part::lora_a, without(kPartA)};
  if (rest.ends_with(kPartB)) return {AdapterKey::Part::lora_b, without(kPartB)};
  if (rest.ends_with(kMagnitude)) return {AdapterKey::Part::magnitude, without(kMagnitude)};
  if (rest.find("lora_") != rest.npos) refuse("belongs to a kind of adapter that is not supported");
  if (module_of(rest) == rest) refuse("names no parameter");
  return {AdapterKey::Part::whole, std::string(rest)};
}

std::vector<TensorShape> adapter_plan(const LoraConfig& config,
                                      const std::vector<TensorShape>& model) {
  using enum AdapterKey::Part;
  std::vector<TensorShape> plan;
  for (const LoraTarget& target : lora_targets(config, model)) {
    plan.push_back({adapter_key({lora_a, target.module}), {target.rank, target.in}});
    plan.push_back({adapter_key({lora_b, target.module}), {target.out, target.rank}});
    if (config.use_dora) plan.push_back({adapter_key({magnitude, target.module}), {target.out}});
  }
  for (TensorShape& tensor : saved_parameters(config, model))
    plan.push_back({adapter_key({whole, tensor.name}), std::move(tensor.shape)});
  return plan;
}

void check_adapter(const Weights& adapter, const LoraConfig& config,
                   const std::vector<TensorShape>& model) {
  std::set<std::string> wanted;
  for (const TensorShape& tensor : adapter_plan(config, model)) {
    adapter.get(tensor);
    wanted.insert(tensor.name);
  }
  for (const std::string& name : adapter.names()) {
    if (wanted.contains(name)) continue;
    const AdapterKey key = parse_adapter_key(name);  // throws if it recognizes an unsupported kind
    throw rendezvous::InputError(
        fmt::format("adapter: tensor {} is for {}, which adapter_config.json "
                    "does not name",
                    in_quotes(name), in_quotes(key.name)));
  }
}

}  // namespace mgpu::checkpoint
