// Compares the log-probabilities that the engine computes on a GPU, in recorded steps over batches
// of changing sizes that are queued behind each other, with those of the trainer's own arithmetic.
// Then it repeats calls in one process whose memory is used for something else in between. Prints
// one line per case and exits with status 1 if a case fails. An argument selects the cases whose
// names contain it.
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <string_view>

#include "runtime/comm/comm.hpp"
#include "runtime/kernels/recording.hpp"
#include "runtime/model/transformer.hpp"
#include "runtime/rollout/engine.hpp"
#include "runtime/train/device.hpp"
#include "runtime/train/to_device.hpp"
#include "tests/gpu/shapes.hpp"

namespace {

using namespace mgpu;

struct Case {
  const char* name;
  at::ScalarType dtype = at::kFloat;
  long lora = 0;
  double penalty = 1;
  double temperature = 1;
  double most = 1e-4, mean = 1e-4;  // allowed differences of log-probabilities
  bool fp32_logits = false;
  long pages = 0;  // of the KV cache; 0: enough
  const char* shape = "0.5B";
  bool some_adapters = false;  // only for q, v and gate
  long sequences = 13;         // at a time; there are 1.5 times as many or more
  long ends = 50;              // tokens, of 5,000, that end a completion
  long more = 0;               // tokens of every other prompt, beside its first 5 to 74
};

std::vector<rollout::Request> make_requests(long vocabulary, long sequences, long more) {
  std::vector<rollout::Request> requests;
  for (long i = 0; i < std::max(20L, sequences / 2); ++i) {
    rollout::Request request;
    for (long t = 0; t < 5 + i * 13 % 70 + i % 2 * more; ++t)
      request.tokens.push_back(static_cast<int>((i * 7919 + t * 104729) % vocabulary));
    for (long seed = 0; seed < 3; ++seed)
      request.seeds.push_back(static_cast<std::uint64_t>(i * 3 + seed));
    requests.push_back(request);
  }
  return requests;
}

// Prompts and completions, concatenated. The target tokens are those of the completions.
data::Batch batch_of(const std::vector<rollout::Request>& requests,
                     const std::vector<std::vector<rollout::Completion>>& completions) {
  data::Batch batch;
  for (std::size_t p = 0; p < requests.size(); ++p)
    for (const auto& one : completions[p]) {
      auto tokens = requests[p].tokens;
      const auto first = tokens.size();
      tokens.insert(tokens.end(), one.tokens.begin(), one.tokens.end());
      batch.starts.push_back(static_cast<int>(batch.tokens.size()));
      batch.longest = std::max(batch.longest, static_cast<int>(tokens.size()) - 1);
      for (std::size_t i = 0; i + 1 < tokens.size(); ++i) {
        batch.tokens.push_back(tokens[i]);
        batch.positions.push_back(static_cast<int>(i));
        batch.targets.push_back(i + 1 >= first ? tokens[i + 1] : data::kNoTarget);
        if (i + 1 >= first) ++batch.target_tokens;
      }
    }
  batch.starts.push_back(static_cast<int>(batch.tokens.size()));
  return batch;
}

// A model with random weights and the sampling of a case.
class Policy {
 public:
  Policy(const Case& wanted, at::Device device, comm::Comm& comm)
      : wanted_(wanted),
        device_(device),
        config_(config_of(wanted)),
        shards_(config_, model::lay_out(config_, adapters_of(wanted)), options_of(wanted, device),
                comm) {
    at::manual_seed(1);
    bench::fill(shards_, device);
    change_adapters(1);
  }

  // Sets `b` of the adapters, so that they change the output.
  void change_adapters(std::uint64_t seed) {
    at::manual_seed(seed);
    for (const auto& unit : shards_.layout().units)
      for (const auto* flat : {&unit.trained, &unit.frozen})
        for (const auto& slot : flat->slots)
          if (slot.name.find("lora_B") != std::string::npos)
            shards_.set(slot.name, at::randn(slot.shape, at::TensorOptions(device_)).mul_(.02));
  }

  struct Generated {
    std::vector<std::vector<rollout::Completion>> completions;
    rollout::Engine::Counts counts;
    std::int64_t tokens = 0;
    double most = 0, mean = 0;  // differences from the trainer's log-probabilities

    bool within(const Case& wanted) const { return most <= wanted.most && mean <= wanted.mean; }
  };

  Generated generate(std::int64_t sequences, std::int64_t pages) {
    const auto requests = make_requests(config_.vocab_size, wanted_.sequences, wanted_.more);
    rollout::GenerationSettings settings;
    settings.sampling.temperature = wanted_.temperature;
    settings.repetition_penalty = wanted_.penalty;
    // Long completions that end at any step: the ends are not known when the next burst is queued.
    settings.max_tokens = 300;
    for (long token = 0; token < wanted_.ends; ++token)
      settings.stop_tokens.push_back(static_cast<std::int32_t>(17 + 4500 / wanted_.ends * token));
    Generated generated;
    {
      rollout::Engine engine(config_,
                             {.model = {device_, wanted_.dtype, kScale, wanted_.fp32_logits},
                              .sequences = sequences,
                              .longest = 75 + wanted_.more + settings.max_tokens,
                              .pages = pages,
                              .burst = 8},
                             shards_);
      generated.completions = engine.generate(requests, settings);
      generated.counts = engine.counts();
    }
    compare(requests, generated);
    return generated;
  }

 private:
  static constexpr double kScale = 2;  // of the adapters

  static model::ModelConfig config_of(const Case& wanted) {
    auto config = bench::shape(wanted.shape);
    config.layers = 4;
    config.vocab_size = 5000;
    return config;
  }
  static model::LoraShape adapters_of(const Case& wanted) {
    auto lora = bench::lora_of_rank(wanted.lora);
    if (wanted.some_adapters) lora.targets = {"q_proj", "v_proj", "gate_proj"};
    return lora;
  }
  static parallel::ShardOptions options_of(const Case& wanted, at::Device device) {
    parallel::ShardOptions options;
    options.device = device;
    options.dtype = wanted.dtype;
    options.trains = false;
    return options;
  }

  void compare(const std::vector<rollout::Request>& requests, Generated& generated) {
    const auto batch = batch_of(requests, generated.completions);
    model::TransformerOptions training;
    training.device = device_;
    training.dtype = wanted_.dtype;
    training.adapter_scale = kScale;
    training.fp32_logits = wanted_.fp32_logits;
    model::Transformer transformer(config_, training);
    const double temperature = wanted_.temperature > 0 ? wanted_.temperature : 1;
    const auto scores =
        transformer.score(train::to_device(batch, device_), temperature, shards_).log_probs.cpu();
    const auto* score = scores.const_data_ptr<float>();
    double sum = 0;
    for (const auto& group : generated.completions)
      for (const auto& one : group)
        for (const float sampled : one.log_probs) {
          const double off = std::abs(static_cast<double>(sampled - *score++));
          generated.most = std::isnan(off) ? off : std::max(generated.most, off);
          sum += off;
        }
    generated.tokens = batch.target_tokens;
    generated.mean = sum / static_cast<double>(batch.target_tokens);
  }

  Case wanted_;
  at::Device device_;
  model::ModelConfig config_;
  parallel::Shards shards_;
};

bool check(const Case& wanted, at::Device device, comm::Comm& comm) {
  const auto generated = Policy(wanted, device, comm).generate(wanted.sequences, wanted.pages);
  const auto& counts = generated.counts;
  const bool full = counts.rows_while_waiting > counts.steps_while_waiting * wanted.sequences * .75;
  const bool good = generated.within(wanted) && (counts.queued_behind > 0) == (wanted.ends < 100) &&
                    (counts.computed_again > 0) == (wanted.pages > 0) && (full || wanted.pages > 0);
  printf(
      "%-5s %-37s %ld tokens: log-probs off by %.2e at most (limit %.0e), %.2e on average (%.0e); "
      "%ld bursts behind others, %ld tokens again\n",
      good ? "ok" : "BAD", wanted.name, static_cast<long>(generated.tokens), generated.most,
      wanted.most, generated.mean, wanted.mean, static_cast<long>(counts.queued_behind),
      static_cast<long>(counts.computed_again));
  return good;
}

bool same(const std::vector<std::vector<rollout::Completion>>& a,
          const std::vector<std::vector<rollout::Completion>>& b) {
  return std::ranges::equal(a, b, [](const auto& x, const auto& y) {
    return std::ranges::equal(x, y, [](const auto& one, const auto& other) {
      return one.tokens == other.tokens && one.log_probs == other.log_probs;
    });
  });
}

// Fills what the allocator has cached with NaN, in pieces of other sizes than generation uses.
void spoil_free_memory(at::Device device) {
  const auto bytes = at::TensorOptions(device).dtype(at::kByte);
  std::vector<at::Tensor> held;
  for (const std::int64_t size : {300'000, 900'000, 7'000'000, 40'000'000, 150'000'000})
    for (int i = 0; i < 8; ++i) held.push_back(at::full({size}, 0xff, bytes));
}

// Calls with other adapters, batch sizes and numbers of pages, in one process. Between them, what
// they have freed is used for something else. The last call repeats the first one.
bool check_calls(const Case& wanted, at::Device device, comm::Comm& comm) {
  Policy policy(wanted, device, comm);
  struct Call {
    std::uint64_t adapters;
    std::int64_t sequences, pages;
  };
  std::vector<Policy::Generated> calls;
  bool good = true;
  double most = 0, mean = 0;
  for (const auto& [adapters, sequences, pages] :
       {Call{1, 13, 0}, Call{2, 13, 0}, Call{3, 60, 0}, Call{4, 5, 0}, Call{5, 33, 60},
        Call{6, 60, 0}, Call{7, 1, 0}, Call{1, 13, 0}}) {
    policy.change_adapters(adapters);
    spoil_free_memory(device);
    const auto& call = calls.emplace_back(policy.generate(sequences, pages));
    good = good && call.within(wanted);
    most = std::isnan(call.most) ? call.most : std::max(most, call.most);
    mean = std::isnan(call.mean) ? call.mean : std::max(mean, call.mean);
  }
  const bool repeated = same(calls.front().completions, calls.back().completions);
  const bool changed = !same(calls[0].completions, calls[1].completions);
  good = good && repeated && changed;
  printf("%-5s %-37s %zu calls: log-probs off by %.2e at most, %.2e on average; %s\n",
         good ? "ok" : "BAD", wanted.name, calls.size(), most, mean,
         !repeated  ? "the last call differs from the first"
         : !changed ? "other adapters make no difference"
                    : "the last call repeats the first");
  return good;
}

// A step that cannot be recorded leaves a device and an allocator that work: another one is
// executed and recorded after it.
bool check_failing_recording(at::Device device) {
  ops::Recording::Store store(device);
  const auto sum = at::zeros({64}, at::TensorOptions(device));
  int calls = 0;
  ops::Recording failing(store, [&] {
    sum.add_(at::ones_like(sum));
    if (++calls == 2) throw std::runtime_error("no second call");
  });
  bool failed = false;
  try {
    failing.run();
  } catch (const std::runtime_error&) {
    failed = true;
  }
  const auto large = at::empty({std::int64_t{1} << 26}, at::TensorOptions(device));
  ops::Recording good_one(store, [&] { sum.add_(at::ones_like(sum)); });
  good_one.run();
  good_one.run();
  const bool good = failed && sum.min().item<float>() == 3 && sum.max().item<float>() == 3;
  printf("%-5s a recording that fails, and one after it\n", good ? "ok" : "BAD");
  return good;
}

}  // namespace

int main(int argc, char** argv) {
  setvbuf(stdout, nullptr, _IOLBF, 0);  // a kernel that fails ends the program
  const std::string_view part = argc > 1 ? argv[1] : "";
  const bool gpu = train::visible_gpus() > 0;
  const auto device = train::take_device(0, gpu);
  const auto comm = comm::join({}, {});
  const auto bf16 = at::kBFloat16;
  bool good = true;
  const auto selected = [&](const Case& wanted) {
    return (gpu || wanted.dtype == at::kFloat) &&
           std::string_view(wanted.name).find(part) != std::string_view::npos;
  };
  for (const auto& wanted :
       {Case{"fp32"}, Case{"fp32, temperature 0.7", at::kFloat, 0, 1, .7},
        Case{"fp32, greedy", at::kFloat, 0, 1, 0}, Case{"fp32, LoRA", at::kFloat, 8},
        Case{"fp32, repetition penalty", at::kFloat, 0, 1.3}, Case{"bf16", bf16, 0, 1, 1, .2, .01},
        Case{"bf16, LoRA", bf16, 8, 1, 1, .2, .01},
        Case{"bf16, LoRA of rank 16", bf16, 16, 1, 1, .2, .01},
        Case{"bf16, LoRA of rank 64", bf16, 64, 1, 1, .2, .01},
        Case{"fp16, LoRA of rank 16", at::kHalf, 16, 1, 1, .1, .005},
        Case{"bf16, repetition penalty", bf16, 0, 1.3, 1, .2, .01},
        Case{"bf16, fp32 logits", bf16, 0, 1, 1, .2, .01, true},
        Case{"fp32, few pages", at::kFloat, 0, 1, 1, 1e-4, 1e-4, false, 40},
        Case{"bf16, few pages", bf16, 0, 1, 1, .2, .01, false, 40},
        Case{"fp32, penalty, few pages", at::kFloat, 0, 1.3, 1, 1e-4, 1e-4, false, 40},
        Case{"bf16, LoRA 16 of some layers", bf16, 16, 1, 1, .2, .01, false, 0, "0.5B", true},
        Case{"bf16, LoRA 16, heads of 128", bf16, 16, 1, 1, .3, .015, false, 0, "1.5B"},
        Case{"bf16, LoRA 16, normed heads", bf16, 16, 1, 1, .4, .02, false, 0, "8B"},
        // More than 64 rows: the small products run on a stream of their own.
        Case{"fp32, LoRA 16, 130 sequences", at::kFloat, 16, 1, 1, 1e-4, 1e-4, false, 0, "0.5B",
             false, 130},
        Case{"bf16, LoRA 16, 130 sequences", bf16, 16, 1, 1, .3, .015, false, 0, "1.5B", false,
             130},
        Case{"bf16, LoRA 16 of some, 130 sequences", bf16, 16, 1, 1, .2, .01, false, 0, "0.5B",
             true, 130},
        // The table of pages becomes wider, beside sequences that began with a narrow one.
        Case{"fp32, long prompts", at::kFloat, 0, 1, 1, 1e-4, 1e-4, false, 0, "0.5B", false, 13, 50,
             1900},
        Case{"bf16, LoRA 16, long prompts", bf16, 16, 1, 1, .3, .015, false, 0, "1.5B", false, 64,
             50, 1900},
        // Not queued behind each other, so that few sizes are recorded.
        Case{"bf16, LoRA 16, short completions", bf16, 16, 1, 1, .2, .01, false, 0, "0.5B", false,
             60, 450}})
    if (selected(wanted)) good = check(wanted, device, *comm) && good;
  for (const auto& wanted : {Case{"calls, fp32, LoRA", at::kFloat, 8},
                             Case{"calls, bf16, LoRA 16", bf16, 16, 1, 1, .2, .01},
                             Case{"calls, bf16, LoRA 16, penalty", bf16, 16, 1.3, 1, .2, .01}})
    if (selected(wanted)) good = check_calls(wanted, device, *comm) && good;
  if (gpu && std::string_view("a recording that fails").find(part) != std::string_view::npos)
    good = check_failing_recording(device) && good;
  comm->close();
  return good ? 0 : 1;
}
