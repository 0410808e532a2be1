#include <fmt/format.h>
#include <stdlib.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <fstream>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>

#include "rendezvous/base/errors.hpp"
#include "rendezvous/base/exit_status.hpp"
#include "rendezvous/base/file_presence.hpp"
#include "rendezvous/base/input_error.hpp"
#include "rendezvous/base/printable.hpp"
#include "rendezvous/base/seeds.hpp"
#include "rendezvous/contract.hpp"
#include "runtime/comm/comm.hpp"
#include "runtime/commands/allowed_file.hpp"
#include "runtime/commands/collect_rows.hpp"
#include "runtime/commands/commands.hpp"
#include "runtime/commands/loaded_model.hpp"
#include "runtime/config/planning/rollout_memory.hpp"
#include "runtime/data/conversation.hpp"
#include "runtime/data/row.hpp"
#include "runtime/data/text_encoder.hpp"
#include "runtime/rollout/engine.hpp"
#include "runtime/text/unicode.hpp"
#include "runtime/train/device.hpp"
#include "runtime/train/failure_report.hpp"

namespace mgpu::recipes {
namespace {

using data::Json;

// Concurrent sequences, and steps between checks for their ends.
constexpr std::int64_t kSequences = 32, kSequencesOnGpu = train::kMostSequences,
                       kGpuBurst = train::kMostBurst;
constexpr std::size_t kChunk = 1024;  // prompts whose completions are written together

struct PromptRow {
  Json row;
  std::vector<std::int32_t> tokens;
};

std::vector<std::int32_t> encode(const Json& prompt, const data::TextEncoder& encoder, bool raw) {
  const bool chat = encoder.has_template() && !raw;
  if (prompt.is_array()) {
    if (!chat)
      throw rendezvous::InputError(
          raw ? "the prompt is a list of messages, which --raw does not support; give a text"
              : "the prompt is a list of messages, but the model has no chat template; give a "
                "text");
    return encoder.encode(encoder.render(data::messages_of(Json{{"prompt", prompt}}, "prompt"),
                                         nullptr, true, Json::object()),
                          false);
  }
  const auto text = prompt.get<std::string>();
  if (!chat) return encoder.encode(text, true);
  const Json messages = Json::array({{{"role", "user"}, {"content", text}}});
  return encoder.encode(encoder.render(messages, nullptr, true, Json::object()), false);
}

std::vector<PromptRow> read_prompts(const train::GenerateCommand& command,
                                    const data::TextEncoder& encoder,
                                    const model::ModelConfig& model) {
  std::vector<PromptRow> rows;
  const auto add = [&](Json row) {
    if (!row.contains("prompt") || !(row["prompt"].is_string() || row["prompt"].is_array()))
      throw rendezvous::InputError("the row has no \"prompt\" with a text or a list of messages");
    auto tokens = encode(row["prompt"], encoder, command.raw);
    if (tokens.empty()) throw rendezvous::InputError("the prompt is empty");
    const auto size = static_cast<std::int64_t>(tokens.size());
    if (size > model.max_position)
      throw rendezvous::InputError(
          fmt::format("the prompt has {} tokens, but the model has only {} positions", size,
                      model.max_position));
    if (model.sliding_window > 0 && size + command.max_new_tokens > model.sliding_window)
      throw rendezvous::InputError(fmt::format(
          "the prompt has {} tokens and --max-new-tokens is {}, together more than the model's "
          "sliding_window of {}, and sliding-window attention is not supported; lower "
          "--max-new-tokens",
          size, command.max_new_tokens, model.sliding_window));
    rows.push_back({std::move(row), std::move(tokens)});
  };
  if (command.input.empty()) {
    try {
      add(Json{{"prompt", command.prompt}});
    } catch (const std::runtime_error& e) {
      rendezvous::throw_like(e, std::string("--prompt: ") + e.what());
    }
    return rows;
  }
  std::ifstream file(command.input);
  if (!file && (errno == ENOENT || errno == ENOTDIR))
    throw train::UsageError(
        fmt::format("--input: cannot read {}: {}", command.input, rendezvous::error_text(errno)));
  if (!file) rendezvous::throw_errno("cannot read " + command.input);
  if (rendezvous::is_folder(command.input))
    throw train::UsageError(
        fmt::format("--input: {} is a folder; give a file with prompts", command.input));
  std::string line;
  errno = 0;
  for (int number = 1; std::getline(file, line); ++number) {
    if (data::blank(line)) continue;
    try {
      add(data::parse_row(line));
    } catch (const std::runtime_error& e) {
      rendezvous::throw_like(e, fmt::format("{}:{}: {}", command.input, number, e.what()));
    }
  }
  if (file.bad()) rendezvous::throw_errno("cannot read " + command.input, errno ? errno : EIO);
  return rows;
}

std::optional<rollout::AllowedSequences> allowed_by(const train::GenerateCommand& command,
                                                    const data::TextEncoder& encoder,
                                                    const model::ModelConfig& model) {
  if (command.allowed.empty()) return std::nullopt;
  if (model.eos_token_ids.empty())
    throw rendezvous::InputError(
        "--allowed: the model has no eos_token_id, so completions cannot end");
  return read_allowed(command.allowed, encoder, model.eos_token_ids.front());
}

// A part of a character would end completions within characters.
void check_stops(const std::vector<std::string>& stops) {
  for (const auto& stop : stops) {
    if (stop.empty()) throw train::UsageError("--stop: the text is empty");
    if (text::first_invalid_utf8(stop)) throw train::UsageError("--stop: the text is not UTF-8");
  }
}

rollout::BeamSettings::EarlyStopping early_stopping_of(const std::string& word) {
  using enum rollout::BeamSettings::EarlyStopping;
  return word == "yes" ? yes : word == "never" ? never : no;
}

rollout::GenerationSettings generation_settings(const train::GenerateCommand& command,
                                                const train::ModelSource& source,
                                                const rollout::AllowedSequences* allowed) {
  rollout::GenerationSettings settings;
  settings.sampling = {command.temperature, command.top_k, command.top_p, command.min_p};
  settings.repetition_penalty = command.repetition_penalty;
  settings.max_tokens = command.max_new_tokens;
  settings.stop_tokens = source.config.eos_token_ids;
  settings.stop_texts = command.stop;
  settings.allowed = allowed;
  settings.beams = {command.beams, command.length_penalty,
                    early_stopping_of(command.early_stopping)};
  settings.text_of = [&](std::span<const std::int32_t> ids) {
    return source.tokenizer.decode(ids, true);
  };
  return settings;
}

// The text of a completion without the token or text that ended it.
std::string text_of(const rollout::Completion& completion,
                    const rollout::GenerationSettings& settings) {
  auto ids = std::span(completion.tokens);
  if (completion.stop_reason == rollout::StopReason::stop_token) ids = ids.first(ids.size() - 1);
  auto text = settings.text_of(ids);
  if (completion.stop_reason != rollout::StopReason::stop_text) return text;
  std::size_t end = text.size();
  for (const auto& stop : settings.stop_texts) end = std::min(end, text.find(stop));
  return text.substr(0, end);
}

const char* name_of(rollout::StopReason reason) {
  switch (reason) {
    case rollout::StopReason::stop_token:
      return "eos";
    case rollout::StopReason::stop_text:
      return "stop";
    case rollout::StopReason::length:
      break;
  }
  return "length";
}

Json with_completions(Json row, const std::vector<rollout::Completion>& completions,
                      const rollout::GenerationSettings& settings,
                      const train::GenerateCommand& command) {
  const auto put = [&](const char* key, auto value_of) {
    Json all = Json::array();
    for (const auto& one : completions) all.push_back(value_of(one));
    row[key] = command.samples == 1 ? all[0] : all;
  };
  put("completion", [&](const auto& one) { return Json(text_of(one, settings)); });
  if (!command.details) return row;
  put("completion_ids", [](const auto& one) { return Json(one.tokens); });
  put("log_probs", [](const auto& one) { return Json(one.log_probs); });
  put("ended", [](const auto& one) { return Json(name_of(one.stop_reason)); });
  if (command.beams > 0) put("score", [](const auto& one) { return Json(one.score); });
  return row;
}

// The output for one row.
std::string output_of(const PromptRow& prompt_row,
                      const std::vector<rollout::Completion>& completions,
                      const rollout::GenerationSettings& settings,
                      const train::GenerateCommand& command) {
  std::string lines;
  if (command.input.empty() && !command.details) {
    for (const auto& one : completions) lines += text_of(one, settings) + "\n";
    return lines;
  }
  const auto row = with_completions(prompt_row.row, completions, settings, command);
  return row.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

// As many concurrent sequences as fit on the GPU beside the model.
std::int64_t limit_to_memory(std::int64_t sequences, std::int64_t longest,
                             const model::ModelConfig& model,
                             const rollout::ModelOptions& options) {
  if (!options.device.is_cuda()) return sequences;
  const auto number = static_cast<std::int64_t>(c10::elementSize(options.dtype));
  const auto memory = train::device_memory(options.device);
  // The rest is for reading prompts, and for fragmentation.
  const auto free =
      (memory.total - memory.used) / 10 * 8 - 3 * sequences * model.vocab_size * number;
  const auto fits =
      train::sequences_that_fit(free, longest + kGpuBurst, train::cache_page(model, number));
  if (fits < 1)
    throw std::runtime_error(fmt::format(
        "a sequence of {} tokens does not fit in the GPU's memory: {:.1f} of {:.1f} GiB "
        "are free; lower --max-new-tokens or --sequences",
        longest, static_cast<double>(memory.total - memory.used) / (1 << 30),
        static_cast<double>(memory.total) / (1 << 30)));
  return std::min(sequences, fits);
}

rollout::EngineOptions engine_options(const std::vector<PromptRow>& rows,
                                      const model::ModelConfig& config,
                                      const rollout::ModelOptions& model,
                                      const train::GenerateCommand& command) {
  std::size_t longest = 0;
  for (const auto& prompt_row : rows) longest = std::max(longest, prompt_row.tokens.size());
  const bool gpu = model.device.is_cuda();
  rollout::EngineOptions options{
      .model = model,
      .sequences = command.sequences > 0 ? command.sequences : (gpu ? kSequencesOnGpu : kSequences),
      .longest = static_cast<std::int64_t>(longest) + command.max_new_tokens,
      .burst = gpu ? kGpuBurst : 1};
  const auto of_prompt = std::max(command.samples, command.beams);  // the beams are concurrent
  const auto all = static_cast<std::int64_t>(rows.size()) * of_prompt;
  options.sequences = std::max(options.sequences, command.beams);
  options.sequences = limit_to_memory(std::clamp<std::int64_t>(all, 1, options.sequences),
                                      options.longest, config, model);
  return options;
}

// The work of all ranks, in the time of the slowest.
std::string summary_of(const rollout::Engine::Counts& mine, comm::Comm& comm) {
  const auto all =
      collect_rows(comm,
                   {Json::array({mine.prompts, mine.prompt_tokens, mine.prefill_seconds,
                                 mine.tokens, mine.decode_seconds})
                        .dump()},
                   static_cast<std::size_t>(comm.world()));
  rollout::Engine::Counts sum;
  for (const auto& text : all) {
    const auto one = Json::parse(text);
    sum.prompts += one[0].get<std::int64_t>();
    sum.prompt_tokens += one[1].get<std::int64_t>();
    sum.prefill_seconds = std::max(sum.prefill_seconds, one[2].get<double>());
    sum.tokens += one[3].get<std::int64_t>();
    sum.decode_seconds = std::max(sum.decode_seconds, one[4].get<double>());
  }
  return fmt::format(
      "read {} prompt{} of {} tokens in {:.2f} s; generated {} tokens in {:.2f} s: {:.0f}/s",
      sum.prompts, sum.prompts == 1 ? "" : "s", sum.prompt_tokens, sum.prefill_seconds, sum.tokens,
      sum.decode_seconds,
      sum.decode_seconds > 0 ? static_cast<double>(sum.tokens) / sum.decode_seconds : 0);
}

// Completes the prompts chunk by chunk: the ranks share the rows of a chunk round-robin, and rank 0
// writes all of them to `out` in order.
void write_completions(const std::vector<PromptRow>& rows, LoadedModel& model,
                       const rollout::ModelOptions& options, const train::GenerateCommand& command,
                       const rollout::AllowedSequences* allowed, comm::Comm& comm,
                       std::ostream& out) {
  const auto settings = generation_settings(command, model.source, allowed);
  rollout::Engine engine(model.source.config,
                         engine_options(rows, model.source.config, options, command),
                         *model.shards);
  const auto rank = static_cast<std::size_t>(comm.rank());
  const auto world = static_cast<std::size_t>(comm.world());
  rollout::Engine::Counts counts;
  for (std::size_t first = 0; first < rows.size(); first += kChunk) {
    const auto count = std::min(kChunk, rows.size() - first);
    std::vector<rollout::Request> requests;
    for (auto i = first + rank; i < first + count; i += world) {
      rollout::Request request{rows[i].tokens, {}};
      for (std::int64_t n = 0; n < command.samples; ++n)
        request.seeds.push_back(rendezvous::derive_seed(rendezvous::derive_seed(command.seed, i),
                                                        static_cast<std::uint64_t>(n)));
      requests.push_back(std::move(request));
    }
    const auto completions = engine.generate(requests, settings);
    counts += engine.counts();
    std::vector<std::string> mine;
    for (std::size_t i = 0; i < completions.size(); ++i)
      mine.push_back(output_of(rows[first + rank + i * world], completions[i], settings, command));
    const auto lines = collect_rows(comm, std::move(mine), count);
    if (rank != 0) continue;
    errno = 0;
    for (const auto& line : lines) out << line;
    out.flush();
    if (!out)
      rendezvous::throw_errno("cannot write to " +
                              (command.output.empty() ? "the standard output" : command.output));
  }
  const auto summary = summary_of(counts, comm);
  if (rank == 0) std::cerr << summary << "\n";
}

// The ranks only exchange completions, through host memory. They wait for the slowest rank, with a
// time limit that is never reached in practice.
std::unique_ptr<comm::Comm> join(const rendezvous::Contract& contract) {
  comm::CommOptions options;
  options.backend = comm::Backend::gloo;
  options.timeout = std::chrono::hours(24 * 7);
  options.fatal = [](const std::string& text) {
    train::write_failure_report(text);
    _Exit(exit_status::kFailure);
  };
  return comm::join(contract, options);
}

}  // namespace

int generate(const train::GenerateCommand& command) {
  check_stops(command.stop);
  rendezvous::Contract contract;
  if (rendezvous::Contract::is_present(getenv))
    contract = rendezvous::Contract::from_environment(getenv);
  const auto device =
      train::take_device(train::gpu_of(contract.local_rank), train::visible_gpus() > 0);
  rollout::ModelOptions options;
  options.device = device;
  options.dtype = train::compute_dtype(train::Dtype::automatic, device);
  auto model = load_model(command.model, command.adapter, device, options.dtype);
  if (contract.rank == 0)
    for (const auto& note : model.notes)
      std::cerr << "note: " << rendezvous::printable(note) << "\n";
  options.adapter_scale = model.adapter_scale;
  const data::TextEncoder encoder(model.source.tokenizer, model.source.chat_template);
  const auto rows = read_prompts(command, encoder, model.source.config);
  const auto allowed = allowed_by(command, encoder, model.source.config);
  const auto comm = join(contract);
  std::ofstream file;
  if (!command.output.empty() && contract.rank == 0) {
    file.open(command.output);
    if (!file) rendezvous::throw_errno("cannot write " + command.output);
  }
  std::ostream& out = command.output.empty() ? std::cout : file;
  write_completions(rows, model, options, command, allowed ? &*allowed : nullptr, *comm, out);
  comm->close();
  return 0;
}

}  // namespace mgpu::recipes
