#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "runtime/text/metaspace.hpp"
#include "runtime/text/replacement.hpp"

namespace mgpu::text {

// The "decoder" of tokenizer.json, which turns tokens into text: ByteLevel, Replace, ByteFallback,
// Fuse, Strip, Metaspace, or a Sequence of them. Without a decoder, tokens are joined with spaces.
class Decoder {
 public:
  Decoder() = default;
  // Throws an error that names any other type.
  explicit Decoder(const nlohmann::json& description);

  std::string decode(std::vector<std::string> tokens) const;

 private:
  enum class Kind { byte_level, replace, byte_fallback, fuse, strip, metaspace };
  struct Step {
    Kind kind = Kind::fuse;
    Replacement replacement;
    Metaspace metaspace;
    std::string stripped;  // one character
    std::size_t at_start = 0, at_end = 0;
  };
  void read(const nlohmann::json& description);
  static Step read_strip(const nlohmann::json& description);
  // `given`: the bytes of the tokens before the first step.
  static void apply(const Step& step, std::size_t given, std::vector<std::string>& tokens);

  bool joins_with_spaces_ = true;
  std::vector<Step> steps_;
};

}  // namespace mgpu::text
