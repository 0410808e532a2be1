// The part of adapter.hpp about an adapter's tokens.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "runtime/train/adapter.hpp"
#include "runtime/train/weights_io.hpp"

namespace mgpu::train {
namespace {

namespace fs = std::filesystem;

// The rows of the embedding and the head, where the adapter has them in full.
std::int64_t saved_rows(const AdapterSource& adapter, const model::ModelConfig& model) {
  const checkpoint::Weights files(adapter.folder, "adapter_model");
  std::int64_t rows = 0;
  for (const auto& name : files.names()) {
    if (!has_vocabulary(checkpoint::parse_adapter_key(name).name)) continue;
    const auto shape = files.get(name).shape;
    if (shape.size() == 2 && shape[1] == model.hidden_size) rows = std::max(rows, shape[0]);
  }
  return rows;  // load_adapter() checks all shapes
}

// The roles for which both tokenizers have tokens, but with different ids.
std::set<std::string> changed_roles(const text::Tokenizer& before, const text::Tokenizer& after) {
  std::set<std::string> roles;
  if (after.bos_id() && after.bos_id() != before.bos_id()) roles.insert("bos_token");
  if (after.eos_id() && after.eos_id() != before.eos_id()) roles.insert("eos_token");
  return roles;
}

}  // namespace

std::vector<std::string> adopt_adapter_vocabulary(const AdapterSource& adapter,
                                                  ModelSource& model) {
  std::vector<std::string> notes;
  std::error_code missing;
  if (fs::exists(fs::path(adapter.folder) / "tokenizer.json", missing)) {
    auto own = text::Tokenizer::load(adapter.folder);
    const auto roles = changed_roles(model.tokenizer, own);
    if (own.files() != model.tokenizer.files())
      notes.push_back(fmt::format("using the tokenizer{} of the adapter {} instead of the model's",
                                  own.chat_template().empty() ? "" : " and the chat template",
                                  adapter.folder));
    if (own.chat_template().empty() && !model.chat_template.empty())
      own.set_chat_template(model.chat_template);
    model.tokenizer = std::move(own);
    model.chat_template = model.tokenizer.chat_template();
    use_special_tokens(model, roles);
  }
  if (const auto rows = saved_rows(adapter, model.config); rows > model.config.vocab_size) {
    notes.push_back(fmt::format("the vocabulary has {} rows, as in the adapter, instead of {}",
                                rows, model.config.vocab_size));
    model.config.vocab_size = rows;
  }
  return notes;
}

}  // namespace mgpu::train
