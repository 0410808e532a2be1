// Prepares a JSONL file for the tests: one JSON object on stdin,
//   {"tokenizer": FOLDER, "file": PATH, "cache": FOLDER, "max_length": N, "text_field": ..,
//    "prompt_template": .., "completion_only_loss": .., "assistant_only_loss": ..,
//    "map_sharegpt_roles": ..}
// and {"input_ids": [[..], ..], "labels": [[..], ..], "lost": N, "dropped": N} on stdout.
#include <cstdio>
#include <exception>
#include <iostream>
#include <string>

#include "runtime/data/prepare.hpp"
#include "runtime/data/text_encoder.hpp"

using namespace mgpu;
using data::Json;

namespace {

data::PrepareOptions options_of(const Json& asked) {
  data::PrepareOptions options{.cache = asked.at("cache").get<std::string>(),
                               .max_length = asked.value("max_length", 0)};
  options.rows.text_field = asked.value("text_field", "text");
  options.rows.prompt_template = asked.value("prompt_template", "");
  options.rows.assistant_only_loss = asked.value("assistant_only_loss", false);
  options.rows.map_sharegpt_roles = asked.value("map_sharegpt_roles", true);
  if (asked.contains("completion_only_loss"))
    options.rows.completion_only_loss = asked["completion_only_loss"].get<bool>();
  return options;
}

Json answer(const Json& asked) {
  const auto tokenizer = text::Tokenizer::load(asked.at("tokenizer").get<std::string>());
  const data::TextEncoder encoder(tokenizer);
  const data::Prepared prepared =
      data::prepare({{asked.at("file").get<std::string>()}}, options_of(asked), encoder);
  Json out = {{"input_ids", Json::array()},
              {"labels", Json::array()},
              {"lost", prepared.reports[0].lost},
              {"dropped", prepared.reports[0].dropped}};
  for (std::uint32_t i = 0; i < prepared.dataset.size(); ++i) {
    const data::Sequence sequence = prepared.dataset[i];
    Json labels = Json::array();
    for (std::size_t t = 0; t < sequence.ids.size(); ++t) labels.push_back(sequence.label(t));
    out["input_ids"].push_back(sequence.ids);
    out["labels"].push_back(std::move(labels));
  }
  return out;
}

}  // namespace

int main() {
  try {
    std::string line;
    std::getline(std::cin, line);
    std::cout << answer(Json::parse(line)).dump() << '\n';
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
