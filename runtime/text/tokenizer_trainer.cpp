#include "runtime/text/tokenizer_trainer.hpp"

#include <algorithm>
#include <stdexcept>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "rendezvous/base/input_error.hpp"
#include "runtime/text/bpe_trainer.hpp"
#include "runtime/text/unicode.hpp"

namespace mgpu::text {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kEndOfText = "<|endoftext|>";
constexpr const char* kUnknown = "<|unk|>";

// How Qwen2 splits text into words.
constexpr const char* kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// The chat template of Qwen2.5 without tools and without a default system message.
constexpr const char* kChatTemplate =
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + "
    "message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|im_start|>assistant\\n' }}{% endif %}";

Json pre_tokenizer_of(TokenizerKind kind) {
  if (kind == TokenizerKind::characters) return nullptr;
  const Json split{{"type", "Split"},
                   {"pattern", {{"Regex", kQwen2}}},
                   {"behavior", "Isolated"},
                   {"invert", false}};
  const Json bytes{{"type", "ByteLevel"},
                   {"add_prefix_space", false},
                   {"trim_offsets", false},
                   {"use_regex", false}};
  return {{"type", "Sequence"}, {"pretokenizers", Json::array({split, bytes})}};
}

// Special tokens, then the most frequent characters in the order of their code points.
LearnedBpe learn_characters(const WordCounts& characters, std::size_t vocab_size) {
  LearnedBpe learned{.tokens = special_tokens(TokenizerKind::characters), .merges = {}};
  auto known = characters.sorted();
  const auto places = vocab_size - learned.tokens.size();
  if (known.size() > places) {
    std::stable_sort(known.begin(), known.end(),
                     [](const auto& a, const auto& b) { return a.second > b.second; });
    known.resize(places);
    std::sort(known.begin(), known.end());  // in UTF-8, bytes have the order of code points
  }
  for (const auto& [character, count] : known) learned.tokens.emplace_back(character);
  return learned;
}

Json added_tokens(const std::vector<std::string>& special) {
  Json list = Json::array();
  for (std::size_t id = 0; id < special.size(); ++id)
    list.push_back({{"id", id},
                    {"content", special[id]},
                    {"single_word", false},
                    {"lstrip", false},
                    {"rstrip", false},
                    {"normalized", false},
                    {"special", true}});
  return list;
}

Json model_of(TokenizerKind kind, const LearnedBpe& learned) {
  const bool characters = kind == TokenizerKind::characters;
  Json vocabulary = Json::object();
  for (std::size_t id = 0; id < learned.tokens.size(); ++id) vocabulary[learned.tokens[id]] = id;
  Json merges = Json::array();
  for (const auto& [left, right] : learned.merges) merges.push_back(Json::array({left, right}));
  return {{"type", "BPE"},
          {"dropout", nullptr},
          {"unk_token", characters ? Json(kUnknown) : Json()},
          {"continuing_subword_prefix", nullptr},
          {"end_of_word_suffix", nullptr},
          {"fuse_unk", false},
          {"byte_fallback", false},
          {"ignore_merges", false},
          {"vocab", std::move(vocabulary)},
          {"merges", std::move(merges)}};
}

std::string tokenizer_json(TokenizerKind kind, const LearnedBpe& learned) {
  const Json bytes{{"type", "ByteLevel"},
                   {"add_prefix_space", false},
                   {"trim_offsets", false},
                   {"use_regex", false}};
  const bool characters = kind == TokenizerKind::characters;
  const Json file{{"version", "1.0"},
                  {"truncation", nullptr},
                  {"padding", nullptr},
                  {"added_tokens", added_tokens(special_tokens(kind))},
                  {"normalizer", {{"type", "NFC"}}},
                  {"pre_tokenizer", pre_tokenizer_of(kind)},
                  {"post_processor", characters ? Json() : bytes},
                  {"decoder", characters ? Json{{"type", "Fuse"}} : bytes},
                  {"model", model_of(kind, learned)}};
  return file.dump(1) + "\n";
}

std::string config_json(TokenizerKind kind) {
  Json config{{"tokenizer_class", "PreTrainedTokenizerFast"},
              {"eos_token", kEndOfText},
              {"pad_token", kEndOfText},
              {"chat_template", kChatTemplate},
              {"clean_up_tokenization_spaces", false}};
  if (kind == TokenizerKind::characters) config["unk_token"] = kUnknown;
  return config.dump(1) + "\n";
}

class CountingSink final : public WordSink {
 public:
  explicit CountingSink(WordCounts& words) : words_(words) {}
  void word(std::string_view text) override { words_.add(text); }

 private:
  WordCounts& words_;
};

}  // namespace

std::vector<std::string> special_tokens(TokenizerKind kind) {
  std::vector<std::string> tokens{kEndOfText, "<|im_start|>", "<|im_end|>"};
  if (kind == TokenizerKind::characters) tokens.emplace_back(kUnknown);
  return tokens;
}

TokenizerKind tokenizer_kind(std::string_view name) {
  if (name == "bpe") return TokenizerKind::bpe;
  if (name == "characters") return TokenizerKind::characters;
  throw rendezvous::InputError(fmt::format("need bpe or characters, not {}", name));
}

std::size_t least_vocabulary(TokenizerKind kind) {
  return special_tokens(kind).size() + (kind == TokenizerKind::bpe ? 256 : 1);
}

TokenizerText::TokenizerText(TokenizerKind kind)
    : kind_(kind), normalizer_(nlohmann::json{{"type", "NFC"}}) {
  if (kind == TokenizerKind::bpe)
    pre_tokenizer_ = PreTokenizer(nlohmann::json(pre_tokenizer_of(kind)));
}

void TokenizerText::read(std::string_view text) {
  if (const auto byte = first_invalid_utf8(text))
    throw rendezvous::InputError(fmt::format("byte {} is not valid UTF-8", *byte + 1));
  text = normalizer_.apply(text, buffer_).text;
  if (kind_ == TokenizerKind::bpe) {
    CountingSink sink(words_);
    pre_tokenizer_.split(text, true, sink);
    return;
  }
  for (std::size_t at = 0; at < text.size();) {
    const auto size = code_point_at(text, at).size;
    words_.add(text.substr(at, size));
    at += size;
  }
}

NewTokenizer train_tokenizer(const TokenizerText& text, const TokenizerTraining& training) {
  if (training.vocab_size < least_vocabulary(training.kind))
    throw rendezvous::InputError(fmt::format("vocab_size {} is too small: need at least {}",
                                             training.vocab_size, least_vocabulary(training.kind)));
  const auto learned =
      training.kind == TokenizerKind::characters
          ? learn_characters(text.words(), training.vocab_size)
          : learn_bpe(text.words(), {.vocab_size = training.vocab_size,
                                     .min_frequency = training.min_frequency,
                                     .special_tokens = special_tokens(training.kind)});
  return {.files = {{"tokenizer.json", tokenizer_json(training.kind, learned)},
                    {"tokenizer_config.json", config_json(training.kind)}},
          .vocab_size = learned.tokens.size()};
}

}  // namespace mgpu::text
