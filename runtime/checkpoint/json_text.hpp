#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace mgpu::checkpoint {

using Json = nlohmann::json;

// Both throw if the text is not JSON, is not UTF-8 or has a duplicate key. The message has the file
// name, and the line and column if known.
Json parse_json(std::string_view text, const std::string& file);
Json read_json(const std::string& path);

// JSON from outside that we keep and write again, such as unknown keys of a config.json, may nest
// this deep: written with indentation, each line is longer by its depth.
inline constexpr int kDeepestKept = 16;
// Throws if the value is nested more deeply. To be called when the value is read: when it is
// written, the training is over.
void check_kept(const Json& json, const std::string& file);

// Untrusted text in quotes, safe for a one-line message: without control characters, cut if it is
// long.
std::string in_quotes(std::string_view text);
std::string brief(const Json& value);  // a value for a message: the scalar, "a list", "an object"

// One JSON object of a file. If a value has the wrong type, getters throw with the file, the key
// and the expected type. A null value counts as absent, as in files written by Python.
class Fields {
 public:
  // `object` must outlive this. `where` is the beginning of messages: "config.json: rope_scaling".
  Fields(const Json& object, std::string where);

  bool has(const char* key) const;
  bool is_null(const char* key) const;    // present, with the value null
  const Json& at(const char* key) const;  // throws if it is absent

  std::int64_t integer(const char* key, std::int64_t least, std::int64_t most) const;
  std::int64_t integer(const char* key, std::int64_t least, std::int64_t most,
                       std::int64_t otherwise) const;
  double number(const char* key) const;
  double number(const char* key, double otherwise) const;
  bool boolean(const char* key, bool otherwise) const;
  std::string string(const char* key) const;
  std::string string(const char* key, const std::string& otherwise) const;
  std::vector<std::string> strings(const char* key) const;  // a list; empty if absent

  const std::string& where() const { return where_; }
  [[noreturn]] void fail(const char* key, const std::string& wanted) const;

 private:
  const Json& object_;
  std::string where_;
};

}  // namespace mgpu::checkpoint
