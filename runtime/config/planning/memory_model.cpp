#include "runtime/config/planning/memory_model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "runtime/config/grpo_values.hpp"
#include "runtime/config/optimizer_choice.hpp"
#include "runtime/model/linear_layers.hpp"

namespace mgpu::train {
namespace {

using enum MemoryPart;

constexpr double kBucket = 25.0 * (1 << 20);  // elements, if no key sets them
constexpr double kNccl = 512.0 * (1 << 20);   // NCCL's channels, with more than one rank
constexpr double kBlock4 = 64;                // weights that share a scale in 4 bits
constexpr double kNested = 256;               // scales that share a scale

// The variables of the formulas, for one rank.
struct Shape {
  double P = 0;                   // parameters
  double M = 0;                   // parameters in matrices of layers, which may be in 4 bits
  double t = 0;                   // trained parameters
  double B = 0;                   // parameters of a layer
  double E = 0;                   // of the embedding
  double H = 0;                   // width
  double A = 0;                   // width of the heads together
  double Q = 0;                   // width of q, k and v together
  double I = 0;                   // width of the MLP
  double V = 0;                   // vocabulary
  double L = 0;                   // layers
  double h = 0;                   // heads
  double T = 0;                   // tokens of a rank's batch
  double R = 0;                   // ranks
  double ra = 0;                  // rank of the adapter x matrices with an adapter
  double w = 2;                   // bytes of a weight, and of an activation
  double l = 2;                   // of a logit, with its gradient
  double g = 4;                   // of a gradient
  double m = 0;                   // of the optimizer's state without the master weight
  double master = 4;              // of the master weight
  double bucket = 0, gather = 0;  // elements
  int zero = 0;
  bool lora = false, four_bit = false, nested = false;
  Recompute recompute = Recompute::no;
};

double shared(const Shape& s, int from_stage) {
  return s.zero >= from_stage ? s.R : 1;
}

double bytes_in_4bit(const Shape& s) {
  return .5 + (s.nested ? 1 / kBlock4 + 4 / (kBlock4 * kNested) : 4 / kBlock4);
}

// Bytes that one layer keeps of a token for its backward pass.
double layer_token(const Shape& s) {
  return s.w * (4 * s.H + s.Q + s.A + 2 * s.I + s.ra / std::max(1.0, s.L)) + 4 * s.h + 8;
}

double kept_layers(const Shape& s) {
  if (s.recompute == Recompute::full) return s.L * s.w * s.H * s.T;
  if (s.recompute == Recompute::offload) return 2 * s.w * s.H * s.T;
  return s.L * layer_token(s) * s.T;
}

bool recomputes(const Shape& s) {
  return s.recompute == Recompute::full || s.recompute == Recompute::offload;
}

// During the backward pass of a layer: the gradients of its widest tensors, the recomputed
// activations, and one dequantized matrix if weights are in 4 bits.
double layer_work(const Shape& s) {
  const double widest = s.H * std::max({2 * s.I, s.Q, s.A});
  return s.T * s.w * (3 * s.I + 2 * s.H) + (recomputes(s) ? layer_token(s) * s.T : 0) +
         (s.four_bit ? widest * s.w : 0);
}

// During the backward pass of the head: the logits of a chunk, which become their gradient in
// place (fp32 logits are then rounded in a copy), and the last hidden states with their gradient.
double head_work(const Shape& s) {
  return std::min<double>(s.T, model::kHeadRows) * s.V * s.l + 2 * s.T * s.H * s.w;
}

struct Formula {
  MemoryPart part;
  const char* name;
  const char* formula;  // {} stands for model::kHeadRows
  double (*bytes)(const Shape&);
};

// All items of the estimate. P: parameters, M: those in matrices of layers, t: trained, B: per
// layer, E: in the embedding. H, A, Q, I, V: widths of the residual stream, heads, q+k+v, MLP,
// vocabulary. L: layers, h: heads, T: tokens in a rank's batch, R: ranks. w, g, m, l: bytes of a
// weight, a gradient, the optimizer's state, a logit (w, or w + 4 with cast_lm_head_to_fp32). Z(n):
// R from zero_stage n on, else 1.
constexpr Formula kFormulas[] = {
    // The weights used for computation. In 4 bits a matrix takes half a byte per weight plus
    // scales.
    {weights, "model", "P w / Z(3)",
     [](const Shape& s) { return s.four_bit ? 0 : s.P * s.w / shared(s, 3); }},
    {weights, "model in 4 bits", "(M (1/2 + scales) + (P - M) w) / Z(3)",
     [](const Shape& s) {
       return s.four_bit ? (s.M * bytes_in_4bit(s) + (s.P - s.M) * s.w) / shared(s, 3) : 0;
     }},
    // Adapters are fp32 and need no separate master weights.
    {weights, "adapter", "4 t", [](const Shape& s) { return s.lora ? 4 * s.t : 0; }},
    // Gradients are accumulated in grad_dtype over the micro-batches of a step.
    {gradients, "accumulated", "g t / Z(2)",
     [](const Shape& s) { return s.g * s.t / shared(s, 2); }},
    {optimizer, "master weights", "4 t / Z(1)",
     [](const Shape& s) { return s.lora ? 0 : s.master * s.t / shared(s, 1); }},
    {optimizer, "moments", "m t / Z(1)", [](const Shape& s) { return s.m * s.t / shared(s, 1); }},
    // Residual inputs and normed inputs (4 H), q k v, attention, gate and up; log-sum-exp.
    // With recomputation only the layer's input; with offloading the inputs of two layers.
    {activations, "kept by layers", "L T (w (4H + Q + A + 2I) + 4h + 8); recomputed: L T w H",
     kept_layers},
    // These two never exist at the same time: the larger one counts.
    {activations, "backward pass of a layer",
     "T w (3I + 2H), recomputed: + T (w (4H + Q + A + 2I) + 4h + 8), in 4 bits: + a matrix",
     layer_work},
    {head, "head, beyond that", "max(0, min(T, {}) V l + 2 T H w - that)",
     [](const Shape& s) { return std::max(0.0, head_work(s) - layer_work(s)); }},
    {communication, "gradient buckets", "2 min(bucket, t) g",
     [](const Shape& s) { return s.R > 1 ? 2 * std::min(s.bucket, s.t) * s.g : 0; }},
    {communication, "gathered weights", "min(gather, t) w",
     [](const Shape& s) { return s.R > 1 && s.zero >= 1 ? std::min(s.gather, s.t) * s.w : 0; }},
    {communication, "two gathered layers and the embedding", "(2 B + E) w",
     [](const Shape& s) { return s.R > 1 && s.zero == 3 ? (2 * s.B + s.E) * s.w : 0; }},
    {outside, "CUDA", "512 MiB", [](const Shape&) { return static_cast<double>(kContextBytes); }},
    {outside, "NCCL", "512 MiB", [](const Shape& s) { return s.R > 1 ? kNccl : 0; }},
};

bool named(const std::vector<std::string>& names, std::string_view name) {
  return std::any_of(names.begin(), names.end(), [&](const std::string& given) {
    return given == name || given.ends_with("." + std::string(name));
  });
}

Shape parameters_of(const model::ModelConfig& m, const TrainConfig& config) {
  Shape s;
  s.L = static_cast<double>(m.layers);
  s.H = static_cast<double>(m.hidden_size);
  s.E = static_cast<double>(m.vocab_size) * s.H;
  double in_matrices = 0, biases = 0, adapted = 0, adapters = 0;
  for (const auto& layer : model::linear_layers(m)) {
    const auto in = static_cast<double>(layer.in), out = static_cast<double>(layer.out);
    in_matrices += in * out;
    if (layer.bias) biases += out;
    if (!layer.adapters ||
        (!config.lora_target_modules.empty() && !named(config.lora_target_modules, layer.name())))
      continue;
    adapted += 1;
    adapters += in + out;
  }
  const double norms = 2 * s.H + (m.qk_norm ? 2 * static_cast<double>(m.head_dim) : 0);
  s.M = s.L * in_matrices;
  s.B = in_matrices + norms + biases;
  s.P = s.L * s.B + s.E + s.H + (m.tied ? 0 : s.E);
  s.lora = config.use_peft;
  const auto r = static_cast<double>(config.lora_r);
  s.ra = s.lora ? r * adapted * s.L : 0;
  s.t = s.lora ? r * adapters * s.L : s.P;
  for (const char* whole : {"embed_tokens", "lm_head"})
    if (s.lora && named(config.lora_modules_to_save, whole)) s.t += s.E;
  return s;
}

Shape shape_of(const model::ModelConfig& m, const TrainConfig& config, std::int64_t ranks) {
  Shape s = parameters_of(m, config);
  const auto head_dim = static_cast<double>(m.head_dim);
  s.h = static_cast<double>(m.heads);
  s.A = s.h * head_dim;
  s.Q = s.A + 2 * static_cast<double>(m.kv_heads) * head_dim;
  s.I = static_cast<double>(m.intermediate_size);
  s.V = static_cast<double>(m.vocab_size);
  s.T = static_cast<double>(config.per_device_train_batch_size) *
        static_cast<double>(config.max_length);
  s.R = static_cast<double>(ranks);
  const bool fp32 = config.dtype == Dtype::fp32;
  s.w = fp32 ? 4 : 2;
  s.l = !fp32 && GrpoValues(config).flag("cast_lm_head_to_fp32") ? s.w + 4 : s.w;
  s.master = fp32 ? 0 : 4;  // fp32 weights are their own master weights
  s.g = config.grad_dtype == "bf16" ? 2 : 4;
  for (const auto& tensor : optimizer_state(config)) s.m += optim::bytes_per_weight(tensor);
  s.bucket =
      config.reduce_bucket_size > 0 ? static_cast<double>(config.reduce_bucket_size) : kBucket;
  s.gather = config.allgather_bucket_size > 0 ? static_cast<double>(config.allgather_bucket_size)
                                              : kBucket;
  const int stage = config.zero_stage == kAutomaticStage ? 1 : config.zero_stage;
  s.zero = ranks > 1 ? stage : 0;
  s.four_bit = config.load_in_4bit;
  s.nested = config.use_bnb_nested_quant;
  s.recompute = config.gradient_checkpointing == Recompute::automatic
                    ? Recompute::no
                    : config.gradient_checkpointing;
  return s;
}

// Caps absurd sizes at a number that fits nowhere instead of overflowing.
std::int64_t to_bytes(double bytes) {
  return static_cast<std::int64_t>(std::clamp(bytes, 0.0, 1e17));
}

}  // namespace

std::int64_t MemoryEstimate::of(MemoryPart part) const {
  std::int64_t sum = 0;
  for (const auto& line : lines)
    if (line.part == part) sum += line.bytes;
  return sum;
}

std::int64_t MemoryEstimate::allocated() const {
  return total() - of(outside);
}

std::int64_t MemoryEstimate::total() const {
  std::int64_t sum = 0;
  for (const auto& line : lines) sum += line.bytes;
  return sum;
}

ParameterCount count_parameters(const model::ModelConfig& model, const TrainConfig& config) {
  const Shape s = parameters_of(model, config);
  return {to_bytes(s.P), to_bytes(s.t), to_bytes(s.B)};
}

MemoryEstimate estimate_memory(const model::ModelConfig& model, const TrainConfig& config,
                               std::int64_t ranks) {
  const Shape s = shape_of(model, config, ranks);
  MemoryEstimate estimate;
  for (const auto& formula : kFormulas)
    if (const double bytes = formula.bytes(s); bytes > 0)
      estimate.lines.push_back({formula.part, formula.name,
                                fmt::format(fmt::runtime(formula.formula), model::kHeadRows),
                                to_bytes(bytes)});
  return estimate;
}

const char* part_name(MemoryPart part) {
  switch (part) {
    case weights:
      return "weights";
    case gradients:
      return "gradients";
    case optimizer:
      return "optimizer";
    case activations:
      return "activations";
    case head:
      return "logits";
    case communication:
      return "communication";
    case outside:
      return "outside";
  }
  return "";
}

}  // namespace mgpu::train
