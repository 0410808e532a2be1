#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "runtime/text/metaspace.hpp"
#include "runtime/text/replacement.hpp"

namespace mgpu::text {

// Receives words one by one.
class WordSink {
 public:
  virtual void word(std::string_view text) = 0;

 protected:
  ~WordSink() = default;
};

// The "pre_tokenizer" of tokenizer.json, which splits normalized text into words that the model
// encodes separately: Split, ByteLevel, Metaspace, Digits, Whitespace, WhitespaceSplit, or a
// Sequence of them with ByteLevel last.
class PreTokenizer {
 public:
  PreTokenizer() = default;  // all text is one word
  // Throws an error that names any other type.
  explicit PreTokenizer(const nlohmann::json& description);

  // Whether the model expects words in the letters of byte_alphabet.hpp. split() still passes
  // bytes.
  bool byte_level() const { return byte_level_; }

  // Passes the words to the sink in order; none is empty. `at_start`: the text is at the start of
  // the whole input.
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
