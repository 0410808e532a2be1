#include "runtime/commands/allowed_file.hpp"

#include <fmt/format.h>

#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <vector>

#include "rendezvous/base/errors.hpp"
#include "runtime/data/row.hpp"

namespace mgpu::recipes {
namespace {

rollout::AllowedSequences::Tokens tokens_of(const std::string& line, const data::Encoder& encoder) {
  const auto value = nlohmann::json::parse(line, nullptr, false);
  if (value.is_string()) return encoder.encode(value.get<std::string>(), false);
  if (!value.is_array())
    throw std::runtime_error("the line is neither a JSON string nor a list of token ids");
  rollout::AllowedSequences::Tokens tokens;
  for (const auto& id : value) {
    if (!id.is_number_integer() || id.get<std::int64_t>() < 0 ||
        id.get<std::int64_t>() > std::numeric_limits<std::int32_t>::max())
      throw std::runtime_error("the list contains something that is not a token id");
    tokens.push_back(id.get<std::int32_t>());
  }
  return tokens;
}

}  // namespace

rollout::AllowedSequences read_allowed(const std::string& path, const data::Encoder& encoder,
                                       std::int32_t end_token) {
  std::ifstream file(path);
  if (!file) rendezvous::throw_errno("cannot read " + path);
  std::vector<rollout::AllowedSequences::Tokens> sequences;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    if (data::blank(line)) continue;
    try {
      sequences.push_back(tokens_of(line, encoder));
    } catch (const std::runtime_error& e) {
      throw std::runtime_error(fmt::format("{}:{}: {}", path, number, e.what()));
    }
  }
  try {
    return {sequences, end_token};
  } catch (const std::runtime_error& e) {
    throw std::runtime_error(path + ": " + e.what());
  }
}

}  // namespace mgpu::recipes
