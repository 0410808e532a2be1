#include "runtime/rl/reward_model.hpp"

#include <fmt/format.h>

#include <filesystem>

#include "rendezvous/base/input_error.hpp"
#include "runtime/checkpoint/hub_cache.hpp"
#include "runtime/checkpoint/json_text.hpp"
#include "runtime/model/families.hpp"
#include "runtime/rl/decoder_reward_model.hpp"
#include "runtime/rl/encoder_reward_model.hpp"
#include "runtime/train/weights_io.hpp"

namespace mgpu::rl {
namespace {

namespace fs = std::filesystem;
using rewards::RewardInputError;

void require_classifier(const std::string& name, const train::ModelSource& model) {
  const auto config = checkpoint::parse_json(model.config_text, model.folder + "/config.json");
  const checkpoint::Fields fields(config, model.folder + "/config.json");
  const auto architectures = fields.strings("architectures");
  if (architectures.size() == 1 && architectures[0].ends_with("ForSequenceClassification")) return;
  throw RewardInputError(
      name,
      fmt::format("{} is a {}; a reward model must be a ...ForSequenceClassification", model.folder,
                  architectures.empty() ? "model without architectures" : architectures[0]));
}

at::Tensor head_of(const std::string& name, const train::ModelSource& model) {
  const auto found = model.weights->find("score.weight");
  if (!found)
    throw RewardInputError(name,
                           model.folder + " has no score.weight, the head that computes the score");
  const auto width = model.config.hidden_size;
  if (found->shape.size() != 2 || found->shape[1] != width)
    throw RewardInputError(
        name, fmt::format("score.weight of {} is not a matrix of width {}", model.folder, width));
  if (found->shape[0] != 1)
    throw RewardInputError(
        name, fmt::format("{} has {} labels; a reward model must have one (num_labels 1)",
                          model.folder, found->shape[0]));
  return train::tensor_over(*found).to(at::kFloat);
}

// The families that train cannot be the only ones that a message names.
void require_known_type(const std::string& folder, const std::string& config_text) {
  const auto config = checkpoint::parse_json(config_text, folder + "/config.json");
  const auto type = checkpoint::Fields(config, "").string("model_type", "");
  if (type.empty() || model::find_family(type)) return;
  throw rendezvous::InputError(fmt::format(
      "{}/config.json: model_type {} is not supported for a reward model; {}, {} are", folder,
      checkpoint::in_quotes(type), encoder::kDebertaType, model::family_names()));
}

// A checkpoint of older programs has no safetensors.
void refuse_pickled_weights(const std::string& folder) {
  for (const char* const name : {"model.safetensors", "model.safetensors.index.json"})
    if (fs::exists(fs::path(folder) / name)) return;
  for (const char* const name : {"pytorch_model.bin", "pytorch_model.bin.index.json"})
    if (fs::exists(fs::path(folder) / name))
      throw rendezvous::InputError(fmt::format(
          "{0} has only {1}, whose pickle format is not supported; to write model.safetensors next "
          "to it: python3 -c \"from transformers import AutoModelForSequenceClassification as M; "
          "M.from_pretrained('{0}').save_pretrained('{0}')\"",
          folder, name));
}

void require_one_label(const train::ModelSource& model) {
  const auto found = model.weights->find("classifier.weight");
  if (!found)
    throw rendezvous::InputError(model.folder +
                                 " has no classifier.weight, the head that computes the score");
  if (found->shape.size() == 2 && found->shape[0] != 1)
    throw rendezvous::InputError(
        fmt::format("{} has {} labels; a reward model must have one (num_labels 1)", model.folder,
                    found->shape[0]));
}

void require_vocabulary(const train::ModelSource& model, std::int64_t rows) {
  if (model.tokenizer.size() > rows)
    throw rendezvous::InputError(fmt::format("{} has vocab_size {} but its tokenizer has {} tokens",
                                             model.folder, rows, model.tokenizer.size()));
}

// A template for pairs can contain any ids and types.
void require_pairs(const train::ModelSource& model, const encoder::DebertaConfig& config) {
  const auto pair = model.tokenizer.encode_pair("a", "b", static_cast<std::size_t>(config.longest));
  for (const auto id : pair.both.ids)
    if (id >= config.vocab_size)
      throw rendezvous::InputError(
          fmt::format("the tokenizer of {} adds the id {} to a pair of texts, but vocab_size is {}",
                      model.folder, id, config.vocab_size));
  for (const auto type : pair.both.types)
    if (config.token_types > 0 && type >= config.token_types)
      throw rendezvous::InputError(
          fmt::format("the tokenizer of {} has the token type {}, but type_vocab_size is {}",
                      model.folder, type, config.token_types));
}

RewardModelSource open_encoder(const std::string& name, std::size_t index,
                               const std::string& folder, std::string config_text) {
  RewardModelSource source{
      name, index, {.folder = folder, .tokenizer = text::Tokenizer::load(folder)}, {}, {}};
  source.deberta = encoder::read_deberta_config(config_text, folder + "/config.json");
  source.model.config_text = std::move(config_text);
  require_classifier(name, source.model);
  require_vocabulary(source.model, source.deberta->vocab_size);
  require_pairs(source.model, *source.deberta);
  refuse_pickled_weights(folder);
  source.model.weights = std::make_unique<checkpoint::Weights>(folder);
  require_one_label(source.model);
  for (const auto& tensor : encoder::deberta_tensors(*source.deberta))
    source.model.weights->get(tensor);
  return source;
}

RewardModelSource open_decoder(const std::string& name, std::size_t index,
                               const std::string& folder) {
  train::TrainConfig config;
  config.model_name_or_path = folder;
  RewardModelSource source{name, index, train::open_model(config), {}, {}};
  require_classifier(name, source.model);
  source.head = head_of(name, source.model);
  source.model.config.tied = true;  // no head over the vocabulary
  train::check_vocabulary(source.model);
  return source;
}

}  // namespace

train::RoleRequest::RewardModel reward_model_memory(const RewardModelSource& source) {
  train::RoleRequest::RewardModel memory{source.name, source.model.config, {}};
  if (source.deberta) memory.encoder = encoder_memory(*source.deberta);
  return memory;
}

RewardModelSource open_reward_model(const std::string& entry, std::size_t index) {
  const auto name = reward_model_name(entry);
  try {
    const auto folder = checkpoint::resolve_model_config(entry);
    auto text = reward_model_config(folder);
    if (encoder::is_deberta(text, folder + "/config.json"))
      return open_encoder(name, index, folder, std::move(text));
    require_known_type(folder, text);
    return open_decoder(name, index, folder);
  } catch (const RewardInputError&) {
    throw;
  } catch (const std::runtime_error& e) {
    rewards::throw_reward_error(name, e);
  }
}

void require_chat_template(const RewardModelSource& source, const std::vector<Prompt>& prompts) {
  if (source.deberta || !source.model.chat_template.empty()) return;
  for (const auto& prompt : prompts)
    if (!prompt.messages.empty())
      throw RewardInputError(source.name,
                             fmt::format("{}: the prompt is a conversation, but {} has no "
                                         "chat template",
                                         prompt.where, source.model.folder));
}

std::unique_ptr<RewardModel> load_reward_model(RewardModelSource source,
                                               const RewardModel::Options& options,
                                               comm::Comm& comm) {
  if (source.deberta) return std::make_unique<EncoderRewardModel>(std::move(source), options, comm);
  return std::make_unique<DecoderRewardModel>(std::move(source), options, comm);
}

}  // namespace mgpu::rl
