#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace mgpu::text {

// The ids of two texts, such as a question and its answer, with special tokens, and the type of
// each id: 0 for the first text, 1 for the second, unless the tokenizer has other types.
struct PairIds {
  std::vector<std::int32_t> ids, types;
};

// The "post_processor" of tokenizer.json, which adds special tokens around the ids of one text or
// of a pair: TemplateProcessing, ByteLevel (which changes no ids), or a Sequence of them.
class PostProcessor {
 public:
  PostProcessor() = default;
  // Throws an error that names any other type.
  explicit PostProcessor(const nlohmann::json& description);

  void apply(std::vector<std::int32_t>& ids) const;

  // Throws if the file has no template for pairs, or several.
  PairIds pair(std::vector<std::int32_t> first, std::vector<std::int32_t> second) const;
  std::size_t tokens_added_to_pair() const;

 private:
  struct Around {
    std::vector<std::int32_t> before, after;
  };
  // A part of a pair's template: one of the texts, or special tokens.
  struct PairPart {
    int text = -1;  // 0, 1; -1: special tokens
    std::vector<std::int32_t> ids;
    std::int32_t type = 0;
  };
  void read(const nlohmann::json& description);
  void read_template(const nlohmann::json& description);
  static std::vector<PairPart> read_pair(const nlohmann::json& description);

  std::vector<Around> steps_;
  std::vector<std::vector<PairPart>> pairs_;  // of each template; empty: it has none
};

}  // namespace mgpu::text
