#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "runtime/data/row.hpp"
#include "runtime/data/text_encoder.hpp"
#include "runtime/recipes/commands.hpp"
#include "runtime/recipes/loaded_model.hpp"
#include "runtime/rollout/decoder.hpp"
#include "runtime/rollout/sampler.hpp"
#include "runtime/train/device.hpp"

namespace mgpu::recipes {
namespace {

using data::Json;

constexpr std::size_t kAtOnce = 16;  // sequences that are continued together

struct Question {
  Json row;
  std::vector<std::int32_t> tokens;
};

std::vector<std::int32_t> encode(const Json& prompt, const data::TextEncoder& encoder, bool raw) {
  const bool chat = encoder.has_template() && !raw;
  if (prompt.is_array()) {
    if (!chat) throw std::runtime_error("the prompt is a conversation and there is no template");
    return encoder.encode(encoder.render(prompt, nullptr, true, Json::object()), false);
  }
  const auto text = prompt.get<std::string>();
  if (!chat) return encoder.encode(text, true);
  const Json messages = Json::array({{{"role", "user"}, {"content", text}}});
  return encoder.encode(encoder.render(messages, nullptr, true, Json::object()), false);
}

std::vector<Question> read_questions(const train::GenerateCommand& command,
                                     const data::TextEncoder& encoder) {
  std::vector<Question> questions;
  const auto add = [&](Json row, const std::string& where) {
    if (!row.contains("prompt") || !(row["prompt"].is_string() || row["prompt"].is_array()))
      throw std::runtime_error(where + ": there is no prompt, a text or a list of messages");
    auto tokens = encode(row["prompt"], encoder, command.raw);
    if (tokens.empty()) throw std::runtime_error(where + ": the prompt is empty");
    questions.push_back({std::move(row), std::move(tokens)});
  };
  if (command.input.empty()) {
    add(Json{{"prompt", command.prompt}}, "--prompt");
    return questions;
  }
  std::ifstream file(command.input);
  if (!file) throw std::runtime_error("cannot read " + command.input);
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    if (data::blank(line)) continue;
    const auto where = fmt::format("{}:{}", command.input, number);
    try {
      add(data::parse_row(line), where);
    } catch (const data::RowError& e) {
      throw std::runtime_error(fmt::format("{}: {}", where, e.what()));
    }
  }
  return questions;
}

std::vector<std::vector<std::int32_t>> answer(std::span<const Question> questions,
                                              std::size_t first, LoadedModel& model,
                                              const rollout::Decoder::Options& options,
                                              const train::GenerateCommand& command) {
  const auto& config = model.source.config;
  std::vector<std::vector<std::int32_t>> prompts;
  std::vector<rollout::Sampler> samplers;
  std::size_t longest = 0;
  for (std::size_t i = 0; i < questions.size(); ++i) {
    prompts.push_back(questions[i].tokens);
    longest = std::max(longest, prompts.back().size());
    samplers.emplace_back(
        rollout::Sampling{command.temperature, command.top_k, command.top_p, 0, command.seed},
        first + i);
  }
  const auto room = static_cast<std::int64_t>(longest) + command.max_new_tokens;
  rollout::Decoder decoder(config, options, *model.shards,
                           static_cast<std::int64_t>(prompts.size()), room);
  std::vector<std::vector<std::int32_t>> answers(prompts.size());
  std::vector<bool> ended(prompts.size(), false);
  auto logits = decoder.read(prompts);
  for (std::int64_t n = 0; n < command.max_new_tokens; ++n) {
    const auto host = logits.to(at::kCPU).contiguous();
    const auto width = static_cast<std::size_t>(host.size(1));
    std::vector<std::int32_t> next(prompts.size(), 0);
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      if (ended[i]) continue;
      next[i] = samplers[i].draw(std::span(host.const_data_ptr<float>() + i * width, width));
      const auto& eos = config.eos_token_ids;
      ended[i] = std::find(eos.begin(), eos.end(), next[i]) != eos.end();
      if (!ended[i]) answers[i].push_back(next[i]);
    }
    if (std::all_of(ended.begin(), ended.end(), [](bool e) { return e; })) break;
    if (n + 1 < command.max_new_tokens) logits = decoder.read(next);
  }
  return answers;
}

}  // namespace

int generate(const train::GenerateCommand& command) {
  const auto device = train::take_device(0, train::visible_gpus() > 0);
  rollout::Decoder::Options options;
  options.device = device;
  options.dtype = train::compute_dtype(train::Dtype::automatic, device);
  auto model = load_model(command.model, command.adapter, device, options.dtype);
  options.adapter_scale = model.adapter_scale;
  const data::TextEncoder encoder(model.source.tokenizer, model.source.chat_template);
  const auto questions = read_questions(command, encoder);
  std::ofstream file;
  if (!command.output.empty()) {
    file.open(command.output);
    if (!file) throw std::runtime_error("cannot write " + command.output);
  }
  std::ostream& out = command.output.empty() ? std::cout : file;
  for (std::size_t first = 0; first < questions.size(); first += kAtOnce) {
    const auto count = std::min(kAtOnce, questions.size() - first);
    const auto some = std::span(questions).subspan(first, count);
    const auto answers = answer(some, first, model, options, command);
    for (std::size_t i = 0; i < count; ++i) {
      const auto text = model.source.tokenizer.decode(answers[i], true);
      if (command.input.empty()) {
        out << text << "\n";
      } else {
        auto row = some[i].row;
        row["completion"] = text;
        out << row.dump(-1, ' ', false, Json::error_handler_t::replace) << "\n";
      }
    }
    out.flush();
    if (!out) throw std::runtime_error("cannot write the answers");
  }
  return 0;
}

}  // namespace mgpu::recipes
