#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "runtime/text/metaspace.hpp"
#include "runtime/text/replacement.hpp"

namespace mgpu::text {

// Takes words one after the other.
class WordSink {
 public:
  virtual void word(std::string_view text) = 0;

 protected:
  ~WordSink() = default;
};

// What tokenizer.json's "pre_tokenizer" does: cuts normalised text into the words that the model
// encodes each by itself. Split, ByteLevel, Metaspace, Digits, Whitespace, WhitespaceSplit, and a
// Sequence of them in which ByteLevel is the last.
class PreTokenizer {
 public:
  PreTokenizer() = default;  // all text is one word
  // Refuses other types by name.
  explicit PreTokenizer(const nlohmann::json& description);

  // Words that the model sees in the letters of byte_alphabet.hpp; split() leaves them as bytes.
  bool byte_level() const { return byte_level_; }

  // Hands out the words in order; none is empty. `at_start` says that the text begins where the
  // whole input does.
  void split(std::string_view text, bool at_start, WordSink& sink) const;

 private:
  enum class Kind { split, prefix_space, metaspace };
  enum class Behavior { removed, isolated, with_previous, with_next, contiguous };
  struct Stage {
    Kind kind = Kind::split;
    Pattern pattern;
    Behavior behavior = Behavior::isolated;
    bool invert = false;
    Metaspace metaspace;
  };
  struct Part {
    std::size_t begin, end;
    bool match;
  };

  void read(const nlohmann::json& description);
  void read_split(const nlohmann::json& description);
  void add_metaspace(const nlohmann::json& description);
  void read_byte_level(const nlohmann::json& description);
  void add_split(std::string_view pattern, Behavior behavior, bool invert = false);
  static Behavior behavior_of(const nlohmann::json& description);

  void run(std::size_t stage, std::string_view text, bool at_start, WordSink& sink) const;
  template <class Emit>
  static void cut(const Stage& stage, std::string_view text, Emit emit);
  static void join(Behavior behavior, std::vector<Part>& parts);

  std::vector<Stage> stages_;
  bool byte_level_ = false;
};

}  // namespace mgpu::text
