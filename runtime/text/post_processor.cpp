#include "runtime/text/post_processor.hpp"

#include <stdexcept>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "rendezvous/base/input_error.hpp"
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
  throw rendezvous::InputError(
      fmt::format("TemplateProcessing uses \"{}\" but does not list its ids", name));
}

void append_ids(const nlohmann::json& ids, std::vector<std::int32_t>& to) {
  for (const auto& id : ids) {
    if (!id.is_number_unsigned() || id > Vocabulary::kHighestId) {
      throw rendezvous::InputError("TemplateProcessing has an invalid id");
    }
    to.push_back(id.get<std::int32_t>());
  }
}

void check_token_count(std::size_t tokens) {
  if (tokens > kMostSpecialTokens)
    throw rendezvous::InputError(
        fmt::format("TemplateProcessing adds more than {} tokens", kMostSpecialTokens));
}

[[noreturn]] void refuse_pair() {
  throw rendezvous::InputError(
      "TemplateProcessing of a pair must contain Sequence A and Sequence B once each");
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
        throw rendezvous::InputError(
            "TemplateProcessing of one text must contain Sequence A exactly once");
      }
      past_text = true;
      continue;
    }
    if (!piece.is_object() || !piece.contains("SpecialToken") ||
        !piece["SpecialToken"].is_object() || special_tokens == description.end()) {
      throw rendezvous::InputError("TemplateProcessing must consist of Sequence and SpecialToken");
    }
    auto& ids = past_text ? around.after : around.before;
    check_token_count(around.before.size() + around.after.size());
    append_ids(ids_of(*special_tokens, string_field(piece["SpecialToken"], "id")), ids);
  }
  if (!past_text)
    throw rendezvous::InputError("TemplateProcessing of one text does not contain the text");
  steps_.push_back(std::move(around));
  pairs_.push_back(read_pair(description));
}

std::vector<PostProcessor::PairPart> PostProcessor::read_pair(const nlohmann::json& description) {
  const auto pieces = description.find("pair");
  if (pieces == description.end() || !pieces->is_array()) return {};
  const auto special_tokens = description.find("special_tokens");
  std::vector<PairPart> parts;
  std::size_t tokens = 0;
  for (const auto& piece : *pieces) {
    if (!piece.is_object() || piece.size() != 1 || !piece.begin()->is_object()) return {};
    const auto& fields = *piece.begin();
    const auto type = fields.find("type_id");
    PairPart part;
    if (type != fields.end() && type->is_number_unsigned() && *type <= Vocabulary::kHighestId)
      part.type = type->get<std::int32_t>();
    if (piece.contains("Sequence")) {
      part.text = string_field(fields, "id") == "B" ? 1 : 0;
    } else if (piece.contains("SpecialToken") && special_tokens != description.end()) {
      check_token_count(tokens);
      append_ids(ids_of(*special_tokens, string_field(fields, "id")), part.ids);
      tokens += part.ids.size();
    } else {
      return {};
    }
    parts.push_back(std::move(part));
  }
  return parts;
}

std::size_t PostProcessor::tokens_added_to_pair() const {
  std::size_t tokens = 0;
  for (const auto& parts : pairs_)
    for (const auto& part : parts) tokens += part.ids.size();
  return tokens;
}

PairIds PostProcessor::pair(std::vector<std::int32_t> first,
                            std::vector<std::int32_t> second) const {
  static const std::vector<PairPart> kPlain{{.text = 0, .ids = {}},
                                            {.text = 1, .ids = {}, .type = 1}};
  if (pairs_.size() > 1)
    throw rendezvous::InputError("several templates for pairs are not supported");
  std::vector<std::int32_t>* const texts[] = {&first, &second};
  int seen[] = {0, 0};
  PairIds both;
  for (const auto& part : pairs_.empty() ? kPlain : pairs_.front()) {
    if (part.text >= 0 && ++seen[part.text] > 1) refuse_pair();
    const auto& ids = part.text < 0 ? part.ids : *texts[part.text];
    both.ids.insert(both.ids.end(), ids.begin(), ids.end());
    both.types.insert(both.types.end(), ids.size(), part.type);
  }
  if (seen[0] + seen[1] != 2) refuse_pair();
  return both;
}

void PostProcessor::apply(std::vector<std::int32_t>& ids) const {
  for (const Around& step : steps_) {
    ids.insert(ids.begin(), step.before.begin(), step.before.end());
    ids.insert(ids.end(), step.after.begin(), step.after.end());
  }
}

}  // namespace mgpu::text
