// The keys of mixtures and streams of datasets.

#include "runtime/config/keys/key_table.hpp"
#include "runtime/config/reading/yaml_values.hpp"

namespace mgpu::train {
namespace {

using C = TrainConfig;

// A list, or as in LLaMA-Factory one text: "0.7,0.3".
Field probabilities() {
  return {.value = "LIST",
          .set =
              [](C& c, const YamlNode& value) {
                c.interleave_probs.clear();
                for (const auto& word : to_words(value)) {
                  const auto number = to_number({.kind = YamlNode::Kind::scalar, .text = word});
                  above(0).check(c.interleave_probs.emplace_back(number));
                }
              },
          .show =
              [](const C& c) {
                std::vector<std::string> shown;
                for (const double number : c.interleave_probs)
                  shown.push_back(shown_number(number));
                return shown_words(shown);
              }};
}

}  // namespace

// clang-format off: one paragraph per key is easier to read than one line per field.
std::vector<KeySpec> mixture_keys() {
  return {
      {.name = "mix_strategy",
       .field = choice(&C::mix_strategy, {{"concat", MixStrategy::concat},
                                          {"interleave_under", MixStrategy::interleave_under},
                                          {"interleave_over", MixStrategy::interleave_over},
                                          {"interleave_once", MixStrategy::interleave_once}}),
       .help = "how an epoch combines several datasets: all rows (concat); rows in the ratio of "
               "interleave_probs until the first dataset ends (interleave_under), or until each "
               "was read once, with the shorter ones repeated (interleave_over) or not "
               "(interleave_once)"},
      {.name = "interleave_probs",
       .field = probabilities(),
       .help = "for mix_strategy: interleave_under and the like: how often a row is one of each "
               "dataset, such as [0.7, 0.3]",
       .initial = "equally often"},
      {.name = "streaming",
       .aliases = {"dataset_streaming"},
       .field = flag(&C::streaming),
       .help = "tokenizes rows while earlier ones are trained on, for data that does not fit; "
               "requires max_steps"},
      {.name = "buffer_size",
       .aliases = {"streaming_multipack_buffer_size"},
       .field = whole(&C::buffer_size, between(1, 100'000'000)),
       .help = "with streaming: rows that are shuffled and packed together"},
  };
}
// clang-format on

}  // namespace mgpu::train
