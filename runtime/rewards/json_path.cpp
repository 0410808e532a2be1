#include "runtime/rewards/json_path.hpp"

#include <charconv>
#include <stdexcept>

#include "rendezvous/base/input_error.hpp"
#include "rendezvous/base/spelling.hpp"

namespace mgpu::rewards {
namespace {

[[noreturn]] void refuse_path(const std::string& text) {
  throw rendezvous::InputError("JSON path " + rendezvous::shown(text) +
                               " is invalid; write it like $.answer.items[0]");
}

}  // namespace

JsonPath::JsonPath(const std::string& text) {
  if (text.empty() || text[0] != '$') refuse_path(text);
  std::size_t at = 1;
  while (at < text.size()) {
    if (text[at] == '.') {
      const auto end = std::min(text.find_first_of(".[", at + 1), text.size());
      if (end == at + 1) refuse_path(text);
      steps_.emplace_back(text.substr(at + 1, end - at - 1));
      at = end;
      continue;
    }
    if (text[at] != '[' || at + 1 >= text.size()) refuse_path(text);
    const char quote = text[at + 1];
    if (quote == '\'' || quote == '"') {
      const auto end = text.find(std::string(1, quote) + "]", at + 2);
      if (end == text.npos) refuse_path(text);
      steps_.emplace_back(text.substr(at + 2, end - at - 2));
      at = end + 2;
      continue;
    }
    const auto end = text.find(']', at);
    if (end == text.npos) refuse_path(text);
    long index = 0;
    const auto [stop, error] = std::from_chars(text.data() + at + 1, text.data() + end, index);
    if (error != std::errc() || stop != text.data() + end) refuse_path(text);
    steps_.emplace_back(index);
    at = end + 1;
  }
}

const nlohmann::json* JsonPath::find(const nlohmann::json& document) const {
  const auto* here = &document;
  for (const auto& step : steps_) {
    if (const auto* name = std::get_if<std::string>(&step)) {
      if (!here->is_object()) return nullptr;
      const auto found = here->find(*name);
      if (found == here->end()) return nullptr;
      here = &*found;
      continue;
    }
    if (!here->is_array()) return nullptr;
    const auto size = static_cast<long>(here->size());
    const long wanted = std::get<long>(step);
    const long index = wanted < 0 ? size + wanted : wanted;
    if (index < 0 || index >= size) return nullptr;
    here = &(*here)[static_cast<std::size_t>(index)];
  }
  return here;
}

}  // namespace mgpu::rewards
