#include "runtime/text/post_processor.hpp"

#include <stdexcept>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "runtime/text/json_fields.hpp"
#include "runtime/text/vocabulary.hpp"

namespace mgpu::text {
namespace {

// A template may repeat a token, and a token may have many ids: together, a file of 100 KB could
// add a billion of them to each text.
constexpr std::size_t kMostSpecialTokens = 1000;

const nlohmann::json& ids_of(const nlohmann::json& special_tokens, const std::string& name) {
  if (special_tokens.is_object()) {
    const auto found = special_tokens.find(name);
    if (found != special_tokens.end() && found->is_object()) return list_field(*found, "ids");
  }
  throw std::runtime_error(
      fmt::format("TemplateProcessing uses \"{}\" but does not list its ids", name));
}

}  // namespace

PostProcessor::PostProcessor(const nlohmann::json& description) {
  if (!description.is_null()) read(description);
}

void PostProcessor::read(const nlohmann::json& description) {
  check_step_count(steps_.size(), "post_processor");
  const std::string type = type_of(description, "post_processor");
  if (type == "Sequence") {
    for (const auto& each : list_field(description, "processors")) read(each);
  } else if (type == "TemplateProcessing") {
    read_template(description);
  } else if (type != "ByteLevel") {
    refuse_type("post_processor", type);
  }
}

void PostProcessor::read_template(const nlohmann::json& description) {
  Around around;
  bool past_text = false;
  const auto special_tokens = description.find("special_tokens");
  for (const auto& piece : list_field(description, "single")) {
    if (piece.is_object() && piece.contains("Sequence")) {
      const auto& sequence = piece["Sequence"];
      if (past_text || !sequence.is_object() || string_field(sequence, "id") != "A") {
        throw std::runtime_error(
            "TemplateProcessing of one text must contain Sequence A exactly once");
      }
      past_text = true;
      continue;
    }
    if (!piece.is_object() || !piece.contains("SpecialToken") ||
        !piece["SpecialToken"].is_object() || special_tokens == description.end()) {
      throw std::runtime_error("TemplateProcessing must consist of Sequence and SpecialToken");
    }
    auto& ids = past_text ? around.after : around.before;
    if (around.before.size() + around.after.size() > kMostSpecialTokens)
      throw std::runtime_error(
          fmt::format("TemplateProcessing adds more than {} tokens", kMostSpecialTokens));
    for (const auto& id : ids_of(*special_tokens, string_field(piece["SpecialToken"], "id"))) {
      if (!id.is_number_unsigned() || id > Vocabulary::kHighestId) {
        throw std::runtime_error("TemplateProcessing has an invalid id");
      }
      ids.push_back(id.get<std::int32_t>());
    }
  }
  if (!past_text)
    throw std::runtime_error("TemplateProcessing of one text does not contain the text");
  steps_.push_back(std::move(around));
}

void PostProcessor::apply(std::vector<std::int32_t>& ids) const {
  for (const Around& step : steps_) {
    ids.insert(ids.begin(), step.before.begin(), step.before.end());
    ids.insert(ids.end(), step.after.begin(), step.after.end());
  }
}

}  // namespace mgpu::text
