#pragma once

#include <cstdint>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace mgpu::text {

// The "post_processor" of tokenizer.json, which adds special tokens around the ids of one text:
// TemplateProcessing, ByteLevel (which changes no ids), or a Sequence of them.
class PostProcessor {
 public:
  PostProcessor() = default;
  // Throws an error that names any other type.
  explicit PostProcessor(const nlohmann::json& description);

  void apply(std::vector<std::int32_t>& ids) const;

 private:
  struct Around {
    std::vector<std::int32_t> before, after;
  };
  void read(const nlohmann::json& description);
  void read_template(const nlohmann::json& description);

  std::vector<Around> steps_;
};

}  // namespace mgpu::text
