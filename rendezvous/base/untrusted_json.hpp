#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

namespace mgpu::rendezvous {

// Deeper than anything that we read; destroying or writing deeper values can exhaust the stack.
inline constexpr int kDeepestJson = 200;

// Whether objects and arrays are nested more deeply than kDeepestJson. The text need not be valid.
bool nests_too_deeply(std::string_view text);

// Parses JSON from outside the program. If it is invalid or nested too deeply, the result
// is_discarded(), which is no object, no array and no other value.
template <class Json = nlohmann::json>
Json parse_untrusted_json(std::string_view text) {
  if (nests_too_deeply(text)) return Json(Json::value_t::discarded);
  return Json::parse(text, nullptr, false);
}

}  // namespace mgpu::rendezvous
