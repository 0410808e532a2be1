#include "runtime/config/planning/memory_model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "runtime/config/grpo_values.hpp"
#include "runtime/config/optimizer_choice.hpp"
#include "runtime/model/linear_layers.hpp"
#include "runtime/parallel/bucket_size.hpp"

namespace mgpu::train {
namespace {

using enum MemoryPart;

constexpr double kNccl = 512.0 * (1 << 20);  // NCCL's channels, with more than one rank
constexpr double kBlas = 32.0 * (1 << 20);   // cuBLAS' workspace on Hopper
constexpr double kBlock4 = 64;               // weights that share a scale in 4 bits
constexpr double kNested = 256;              // scales that share a scale
constexpr double kFp8Block = 128;            // weights in fp8 that share a scale, each way

// The variables of the formulas, for one rank.
struct Shape {
  double P = 0;             // parameters
  double M = 0;             // parameters in matrices of layers, which may be in 4 bits
  double t = 0;             // trained parameters
  double B = 0;             // parameters of a layer
  double b = 0;             // of them in matrices
  double rows = 0;          // of the matrices of a layer
  double blocks = 0;        // scales of the matrices of a layer in fp8
  double tb = 0;            // trained parameters of a layer
  double E = 0;             // of the embedding, and of the head
  double hosted = 0;        // of the embedding, if it is in host memory
  double whole = 0;         // trained beside adapters, in the embedding and the head
  double te = 0;            // trained in the matrix of the head
  double H = 0;             // width
  double A = 0;             // width of the heads together
  double Q = 0;             // width of q, k and v together
  double I = 0;             // width of the MLP
  double V = 0;             // vocabulary
  double L = 0;             // layers
  double rows_at_once = 0;  // target tokens whose logits exist at a time
  double h = 0;             // heads
  double n = 0;             // heads of q and k that have norms
  double d = 0;             // width of a head
  double T = 0;             // tokens of a micro-batch
  double R = 0;             // ranks
  double ra = 0;            // rank of the adapter x matrices with an adapter
  double w = 2;             // bytes of a weight, and of an activation
  double l = 2;             // of a logit, with its gradient
  double g = 4;             // of a gradient
  double m = 0;             // of the optimizer's state without the master weight
  double master = 4;        // of the master weight
  double bucket = 0;        // elements
  int zero = 0;
  int bits = 0;  // of a weight of the frozen matrices: 4, 8, or 0 if they are not quantized
  Fp8 fp8 = Fp8::none;
  bool lora = false, dora = false, nested = false, tied = false;
  bool median = false, accumulates = false, timed = false;
  double N = 0;  // layers that are recomputed: the first ones
  bool offloaded = false;
};

double shared(const Shape& s, int from_stage) {
  return s.zero >= from_stage ? s.R : 1;
}

double bytes_packed(const Shape& s) {
  if (s.fp8 == Fp8::base) return 1 + 4 * s.blocks / s.b;
  if (s.bits == 8) return 1 + 4 * s.rows / s.b;  // a scale per row
  return .5 + (s.nested ? 1 / kBlock4 + 4 / (kBlock4 * kNested) : 4 / kBlock4);
}

// Whether every layer is recomputed. Otherwise the last ones, which come first in backward, are
// not.
bool recomputes_all(const Shape& s) {
  return s.N > 0 && s.N == s.L;
}

// Bytes that one layer keeps of a token for its backward pass: its input, and the rest.
double input_token(const Shape& s) {
  return s.w * s.H;
}

double saved_token(const Shape& s) {
  return s.w * (3 * s.H + s.Q + s.A + 2 * s.I + s.n * s.d + s.ra / std::max(1.0, s.L)) + 4 * s.h +
         4 * s.n + 8;
}

// What layers keep that are not recomputed.
double kept_whole(const Shape& s) {
  return (s.L - s.N) * s.T * (input_token(s) + saved_token(s));
}

// What recomputed layers keep: their inputs, on the host if these are offloaded.
double kept_inputs(const Shape& s) {
  return s.offloaded ? 0 : s.N * s.T * input_token(s);
}

// Offloaded inputs come back one by one, each while the layer above it is computed.
double returned_inputs(const Shape& s) {
  if (!s.offloaded) return 0;
  const double inputs = recomputes_all(s) ? 2 : s.L - s.N == 1 ? 1 : 0;
  return inputs * s.T * input_token(s);
}

// The bytes that this many layers, the last ones, have freed when backward has left them behind.
// If all of them keep everything and the next one is recomputed, its results take the place of
// those of one layer.
double freed_by(const Shape& s, double layers) {
  const double whole = s.N > 0 ? std::max(0.0, s.L - s.N - 1) : s.L;
  return s.T * (layers * input_token(s) + std::min(layers, whole) * saved_token(s));
}

// The gradient of gate and up, which is also in fp8, beside the output of swiglu, or later beside
// the transposed weight. A trained weight is quantized first.
double gate_up_in_fp8(const Shape& s) {
  if (s.fp8 == Fp8::none) return 0;
  const double act = s.T * s.w * s.I;
  const double weights = (s.fp8 == Fp8::mlp ? 2 : 1) * 2 * s.H * s.I;
  return 2 * s.T * s.I * (s.w + 1 + 4 / kFp8Block) + std::max(act, weights);
}

// The backward pass of a layer: the gradients of its widest tensors and what has to be computed
// again. Dequantized matrices are larger than these if there are few tokens. DoRA also scales the
// gradients of gate and up, and computes the output of one of them again.
double layer_work(const Shape& s) {
  const double widest = s.T * s.w * (3 + (s.dora ? 3 : 0)) * s.I;
  const double down = s.w * (2 * s.T * s.I + s.H * s.I);
  const double gate_up = s.w * (s.T * s.H + 2 * s.H * s.I);
  const double product = std::max(widest, s.bits > 0 ? std::max(down, gate_up) : 0);
  return s.T * s.w * s.H + std::max(product, gate_up_in_fp8(s)) +
         (recomputes_all(s) ? s.T * saved_token(s) : 0);
}

double quantized_model(const Shape& s) {
  return (s.M * bytes_packed(s) + (s.P - s.whole - s.M) * s.w) / shared(s, 3);
}

// Trained elements of the bucket that a layer is in. Stage 3 has a bucket for every unit.
double bucket_of_layers(const Shape& s) {
  if (s.tb == 0) return 0;
  const double layers = s.zero == 3 ? 1 : std::clamp(std::floor(s.bucket / s.tb), 1.0, s.L);
  return layers * s.tb;
}

// Stages 2 and 3: whole gradients during the backward pass of the last layers. The bucket of one
// layer is filled while that of the one before it is reduced, whose activations are free by then.
// An embedding that is also the head stays open until the end; other heads are reduced first.
double open_gradients(const Shape& s) {
  if (s.zero < 2) return 0;
  const double layers = bucket_of_layers(s);
  const double freed = s.tb > 0 ? freed_by(s, layers / s.tb) : 0;
  const double second = std::max(0.0, layers * s.g - freed);
  const double sums = s.accumulates ? 1 + 1 / s.R : 1;  // later micro-batches are added up
  if (s.tied) return s.te * s.g + (layers * s.g + second) * sums;
  return (layers * s.g + std::max(s.te * s.g, second)) * sums;
}

// The bytes of a layer that stage 3 has gathered.
double gathered_layer(const Shape& s) {
  const double frozen = s.lora ? s.tb * s.w : 0;
  return frozen + (s.bits > 0 ? s.b * bytes_packed(s) + (s.B - s.b) * s.w : s.B * s.w);
}

// Memory is fullest either when the head computes its first logits, or when the last layer, which
// is the first one in backward, has just freed the head.
enum class Moment { always, head, layer };

struct Formula {
  Moment moment;
  MemoryPart part;
  const char* name;
  const char* formula;  // {} stands for head_rows
  double (*bytes)(const Shape&);
};

// All items of the estimate. P: parameters, M: those in matrices of layers, t: trained, B: per
// layer, E: in the embedding. H, A, Q, I, V: widths of the residual stream, heads, q+k+v, MLP,
// vocabulary. L: layers, N: recomputed, h: heads, T: tokens in a micro-batch, R: ranks. w, g, m, l:
// bytes of a weight, a gradient, the optimizer's state, a logit (w, or w + 4 with
// cast_lm_head_to_fp32). Z(n): R from zero_stage n on, else 1.
constexpr Formula kFormulas[] = {
    // The weights used for computation. A quantized matrix takes half a byte or a byte per weight
    // plus scales.
    {Moment::always, weights, "model", "P w / Z(3)",
     [](const Shape& s) { return s.bits > 0 ? 0 : (s.P - s.whole) * s.w / shared(s, 3); }},
    {Moment::always, weights, "model in 4 bits", "(M (1/2 + scales) + (P - M) w) / Z(3)",
     [](const Shape& s) { return s.bits == 4 ? quantized_model(s) : 0; }},
    {Moment::always, weights, "model in 8 bits", "(M (1 + scales) + (P - M) w) / Z(3)",
     [](const Shape& s) { return s.bits == 8 ? quantized_model(s) : 0; }},
    {Moment::always, weights, "embedding, in host memory", "- E w / Z(3)",
     [](const Shape& s) { return -s.hosted * s.w / shared(s, 3); }},
    {Moment::always, weights, "adapter", "w t / Z(3)",
     [](const Shape& s) { return s.lora ? s.w * s.t / shared(s, 3) : 0; }},
    // Gradients are accumulated in grad_dtype over the micro-batches of a step.
    {Moment::always, gradients, "accumulated", "g t / Z(2)",
     [](const Shape& s) { return s.g * s.t / shared(s, 2); }},
    {Moment::always, optimizer, "master weights", "4 t / Z(1)",
     [](const Shape& s) { return s.master * s.t / shared(s, 1); }},
    {Moment::always, optimizer, "moments", "m t / Z(1)",
     [](const Shape& s) { return s.m * s.t / shared(s, 1); }},
    // Residual inputs and normed inputs (4 H), q k v, attention, gate and up; log-sum-exp; q and k
    // before their norms.
    {Moment::always, activations, "kept by layers", "L T (w (4H + Q + A + 2I) + 4h + 8)",
     [](const Shape& s) { return s.N == 0 ? kept_whole(s) : 0; }},
    {Moment::always, activations, "kept by layers, not recomputed",
     "(L - N) T (w (4H + Q + A + 2I) + 4h + 8)",
     [](const Shape& s) { return s.N > 0 ? kept_whole(s) : 0; }},
    // With recomputation only the layer's input.
    {Moment::always, activations, "kept by layers, recomputed", "N T w H", kept_inputs},
    {Moment::layer, activations, "inputs that come back from the host", "2 T w H", returned_inputs},
    {Moment::layer, activations, "backward pass of a layer",
     "T w (H + 3I), with DoRA + T w 3I, if all are recomputed: + T (w (3H + Q + A + 2I) + 4h + 8); "
     "in fp8 + T 2I",
     layer_work},
    // The logits of a chunk become their gradient in place; the chunk's hidden states and their
    // gradient.
    {Moment::head, head, "logits", "min(T, {}) (l V + 2 w H)",
     [](const Shape& s) { return std::min(s.T, s.rows_at_once) * (s.l * s.V + 2 * s.w * s.H); }},
    {Moment::head, head, "hidden states", "3 T w H",
     [](const Shape& s) { return 3 * s.T * s.w * s.H; }},
    {Moment::head, communication, "whole gradient of the head", "E g",
     [](const Shape& s) { return s.zero >= 2 ? s.te * s.g : 0; }},
    {Moment::head, communication, "gathered head and layer", "(E + B) w",
     [](const Shape& s) { return s.zero == 3 ? s.E * s.w + gathered_layer(s) : 0; }},
    {Moment::layer, communication, "whole gradients of buckets", "(E +) bucket g, at most 2",
     open_gradients},
    {Moment::layer, communication, "two gathered layers", "2 B w",
     [](const Shape& s) { return s.zero == 3 ? 2 * gathered_layer(s) : 0; }},
    {Moment::layer, communication, "exchange for the median", "2 bucket g",
     [](const Shape& s) { return s.R > 1 && s.median ? 2 * bucket_of_layers(s) * s.g : 0; }},
    {Moment::always, workspace, "cuBLAS", "32 MiB", [](const Shape&) { return kBlas; }},
    {Moment::always, workspace, "cuBLAS, timed algorithms", "32 MiB",
     [](const Shape& s) { return s.timed ? kBlas : 0; }},
    {Moment::always, workspace, "cuBLAS, products in fp8", "32 MiB",
     [](const Shape& s) { return s.fp8 != Fp8::none ? kBlas : 0; }},
    {Moment::always, outside, "CUDA", "512 MiB",
     [](const Shape&) { return static_cast<double>(kContextBytes); }},
    {Moment::always, outside, "NCCL", "512 MiB",
     [](const Shape& s) { return s.R > 1 ? kNccl : 0; }},
};

double bytes_at(const Shape& s, Moment moment) {
  double sum = 0;
  for (const auto& formula : kFormulas)
    if (formula.moment == moment) sum += formula.bytes(s);
  return sum;
}

Shape parameters_of(const model::ModelConfig& m, const TrainConfig& config) {
  Shape s;
  s.L = static_cast<double>(m.layers);
  s.H = static_cast<double>(m.hidden_size);
  s.E = static_cast<double>(m.vocab_size) * s.H;
  const auto r = static_cast<double>(config.lora_r);
  const auto& targets = config.lora_target_modules;
  double in_matrices = 0, biases = 0, adapted = 0, adapters = 0;
  for (const auto& layer : model::linear_layers(m)) {
    const auto in = static_cast<double>(layer.in), out = static_cast<double>(layer.out);
    in_matrices += in * out;
    s.rows += out;
    // Rows of blocks have their scales at multiples of 16 bytes.
    s.blocks += std::ceil(out / kFp8Block) * 4 * std::ceil(in / kFp8Block / 4);
    if (layer.bias) biases += out;
    if (!layer.adapters || (!targets.empty() && !names_module(targets, "all-linear") &&
                            !names_module(targets, std::string(layer.name()))))
      continue;
    adapted += 1;
    adapters += r * (in + out) + (config.use_dora ? out : 0);
  }
  const double norms = 2 * s.H + (m.qk_norm ? 2 * static_cast<double>(m.head_dim) : 0);
  s.M = s.L * in_matrices;
  s.b = in_matrices;
  s.B = in_matrices + norms + biases;
  s.tied = m.tied;
  s.P = s.L * s.B + s.E + s.H + (m.tied ? 0 : s.E);
  s.lora = config.use_peft;
  s.ra = s.lora ? r * adapted * s.L : 0;
  s.tb = s.lora ? adapters : s.B;
  const auto trains = [&](const char* whole) {
    return !s.lora || names_module(config.lora_modules_to_save, whole);
  };
  s.te = trains(m.tied ? "embed_tokens" : "lm_head") ? s.E : 0;
  if (s.lora)
    for (const char* whole : {"embed_tokens", "lm_head"})
      if (trains(whole) && !(m.tied && whole == std::string_view("lm_head"))) s.whole += s.E;
  s.t = s.lora ? s.tb * s.L + s.whole : s.P;
  return s;
}

// Of the largest micro-batch, with the longest rows. With GRPO the completions of a prompt are kept
// together, and their prompt is computed once. Truncated completions that are left out can divide
// groups.
std::int64_t tokens_at_once(const TrainConfig& config) {
  if (micro_batch_tokens(config) > 0) return most_micro_batch_tokens(config);
  const auto rows = config.per_device_train_batch_size;
  const GrpoValues values(config);
  if (config.task != Task::grpo || !may_divide_micro_batches(config) ||
      values.flag("mask_truncated_completions"))
    return rows * config.max_length;
  const auto completion =
      std::min(values.whole("max_completion_length").value_or(512), config.max_length);
  const auto group = std::max<std::int64_t>(values.whole("num_generations").value_or(8), 1);
  const bool even = rows % group == 0 || group % rows == 0;  // else a group more has a part in it
  const auto prompts = std::min(rows, (rows + group - 1) / group + (even ? 0 : 1));
  return prompts * (config.max_length - completion) + rows * completion;
}

Shape shape_of(const model::ModelConfig& m, const TrainConfig& config, std::int64_t ranks) {
  Shape s = parameters_of(m, config);
  const auto head_dim = static_cast<double>(m.head_dim);
  s.h = static_cast<double>(m.heads);
  s.A = s.h * head_dim;
  s.Q = s.A + 2 * static_cast<double>(m.kv_heads) * head_dim;
  s.I = static_cast<double>(m.intermediate_size);
  s.V = static_cast<double>(m.vocab_size);
  s.T = static_cast<double>(tokens_at_once(config));
  s.R = static_cast<double>(ranks);
  const bool fp32 = config.dtype == Dtype::fp32;
  s.w = fp32 ? 4 : 2;
  s.l = !fp32 && GrpoValues(config).flag("cast_lm_head_to_fp32") ? s.w + 4 : s.w;
  s.master = fp32 ? 0 : 4;  // fp32 weights are their own master weights
  s.g = config.grad_dtype == "bf16" ? 2 : 4;
  for (const auto& tensor : optimizer_state(config)) s.m += optim::bytes_per_weight(tensor);
  s.bucket = static_cast<double>(config.reduce_bucket_size > 0 ? config.reduce_bucket_size
                                                               : parallel::kDefaultBucketElements);
  const int stage = config.zero_stage == kAutomaticStage ? 1 : config.zero_stage;
  s.zero = ranks > 1 ? stage : 0;
  s.bits = bits_of_base(config);
  s.fp8 = config.fp8;
  s.dora = s.lora && config.use_dora;
  s.median = config.gradient_aggregation == Aggregation::median;
  s.timed = config.gemm_choice == GemmSelection::timed;
  s.accumulates = config.gradient_accumulation_steps > 1 || config.global_batch_size > 0 ||
                  micro_batch_tokens(config) > 0;
  s.d = head_dim;
  s.n = m.qk_norm ? s.h + static_cast<double>(m.kv_heads) : 0;
  s.nested = config.use_bnb_nested_quant;
  s.rows_at_once = static_cast<double>(config.head_rows);
  s.hosted = config.offload_embedding == true && can_offload_embedding(m, config) ? s.E : 0;
  s.N = static_cast<double>(recomputed_layers_of(config, m.layers));
  s.offloaded = config.gradient_checkpointing == Recompute::offload;
  return s;
}

// Caps absurd sizes at a number that fits nowhere instead of overflowing.
std::int64_t to_bytes(double bytes) {
  return static_cast<std::int64_t>(std::clamp(bytes, -1e17, 1e17));
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
  const auto other =
      bytes_at(s, Moment::head) < bytes_at(s, Moment::layer) ? Moment::head : Moment::layer;
  MemoryEstimate estimate;
  for (const auto& formula : kFormulas)
    if (const double bytes = formula.bytes(s); formula.moment != other && bytes != 0)
      estimate.lines.push_back({formula.part, formula.name,
                                fmt::format(fmt::runtime(formula.formula), config.head_rows),
                                to_bytes(bytes)});
  return estimate;
}

bool can_offload_embedding(const model::ModelConfig& model, const TrainConfig& config) {
  return !model.tied && has_frozen_embedding(config);
}

std::int64_t host_embedding_bytes(const model::ModelConfig& model, const TrainConfig& config) {
  const Shape s = shape_of(model, config, 1);
  return to_bytes(s.hosted * s.w);
}

std::int64_t checkpoint_bytes(const model::ModelConfig& model, const TrainConfig& config) {
  constexpr double kFp32 = 4;
  const Shape s = shape_of(model, config, 1);
  const double appended = config.use_peft && config.pissa ? s.t - s.whole : 0;
  const double files = config.use_peft ? (s.t + appended) * kFp32 : s.P * s.w;
  return to_bytes(files + (config.save_only_model ? 0 : s.t * (kFp32 + s.m)));
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
    case workspace:
      return "workspace";
    case outside:
      return "outside";
  }
  return "";
}

}  // namespace mgpu::train
