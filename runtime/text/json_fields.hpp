#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

namespace mgpu::text {

// Fields of one object of tokenizer.json. An absent or null field gives the default. A field of
// another type throws an error with its name.
bool bool_field(const nlohmann::json& object, const char* name, bool otherwise);
std::string string_field(const nlohmann::json& object, const char* name);

// The list under a name. Throws if it is absent or not a list.
const nlohmann::json& list_field(const nlohmann::json& object, const char* name);

// The object's "type".
std::string type_of(const nlohmann::json& object, std::string_view what);

// A normalizer, pre_tokenizer, post_processor or decoder has at most this many steps; real ones
// have less than ten. Throws if there are already so many.
inline constexpr std::size_t kMostSteps = 100;
void check_step_count(std::size_t steps, std::string_view what);

// A few replacements in a row, each of which doubles a text, would exhaust the memory. Together,
// the steps may make a text this many times as long, and a little more.
inline constexpr std::size_t kMostGrowth = 32;
inline constexpr std::size_t longest_result(std::size_t bytes) {
  return kMostGrowth * bytes + 64;
}
[[noreturn]] void refuse_growth();

// Throws "WHAT type NAME is not supported".
[[noreturn]] void refuse_type(std::string_view what, std::string_view name);

}  // namespace mgpu::text
