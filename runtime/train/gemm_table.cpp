#include "runtime/train/gemm_table.hpp"

#include <fmt/format.h>

#include <charconv>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "runtime/checkpoint/json_text.hpp"

namespace mgpu::train {
namespace {

using checkpoint::Fields;
using checkpoint::Json;
using ops::Gemm;
using ops::GemmAlgorithm;
using ops::GemmChoice;

constexpr std::int64_t kLargest = std::int64_t{1} << 40;
constexpr std::size_t kDigits = 16;  // of a word

constexpr std::pair<const char*, at::ScalarType> kTypeNames[] = {
    {"bf16", at::kBFloat16}, {"fp16", at::kHalf}, {"fp32", at::kFloat}};

const char* name_of(at::ScalarType type) {
  for (const auto& [name, known] : kTypeNames)
    if (known == type) return name;
  throw std::logic_error("a matrix product of a type without a name");
}

at::ScalarType type_in(const Fields& fields, const char* key) {
  const auto text = fields.string(key);
  for (const auto& [name, type] : kTypeNames)
    if (text == name) return type;
  fields.fail(key, "bf16, fp16 or fp32");
}

bool flag_in(const Fields& fields, const char* key) {
  if (!fields.has(key) || !fields.at(key).is_boolean()) fields.fail(key, "true or false");
  return fields.at(key).get<bool>();
}

std::string text_of(const GemmAlgorithm& algorithm) {
  std::string text;
  for (const auto word : algorithm.words) text += fmt::format("{:016x}", word);
  return text;
}

GemmAlgorithm algorithm_in(const Fields& fields) {
  GemmAlgorithm algorithm;
  const auto text = fields.string("algorithm");
  bool valid = text.size() == kDigits * algorithm.words.size();
  for (std::size_t i = 0; valid && i < algorithm.words.size(); ++i) {
    const auto* const begin = text.data() + i * kDigits;
    const auto [end, error] = std::from_chars(begin, begin + kDigits, algorithm.words[i], 16);
    valid = error == std::errc() && end == begin + kDigits;
  }
  if (!valid) fields.fail("algorithm", "128 hexadecimal digits, or null");
  algorithm.workspace = static_cast<std::uint64_t>(fields.integer("workspace", 0, kLargest));
  return algorithm;
}

Json choice_json(const GemmChoice& choice) {
  const auto& g = choice.gemm;
  Json json{{"rows", g.rows},
            {"columns", g.columns},
            {"depth", g.depth},
            {"a_stride", g.a_stride},
            {"b_stride", g.b_stride},
            {"out_stride", g.out_stride},
            {"a_transposed", g.a_transposed},
            {"b_transposed", g.b_transposed},
            {"type", name_of(g.type)},
            {"out_type", name_of(g.out_type)},
            {"bias", g.bias},
            {"accumulates", g.accumulates},
            {"from_step", choice.from_step},
            {"algorithm", nullptr}};
  if (choice.algorithm) {
    json["algorithm"] = text_of(*choice.algorithm);
    json["workspace"] = choice.algorithm->workspace;
  }
  return json;
}

GemmChoice choice_in(const Json& json, const std::string& where) {
  if (!json.is_object()) throw std::runtime_error(where + " must be an object");
  const Fields fields(json, where);
  const auto size = [&](const char* key) { return fields.integer(key, 1, kLargest); };
  GemmChoice choice;
  choice.gemm = {.rows = size("rows"),
                 .columns = size("columns"),
                 .depth = size("depth"),
                 .a_stride = size("a_stride"),
                 .b_stride = size("b_stride"),
                 .out_stride = size("out_stride"),
                 .a_transposed = flag_in(fields, "a_transposed"),
                 .b_transposed = flag_in(fields, "b_transposed"),
                 .type = type_in(fields, "type"),
                 .out_type = type_in(fields, "out_type"),
                 .bias = flag_in(fields, "bias"),
                 .accumulates = flag_in(fields, "accumulates")};
  choice.from_step = fields.integer("from_step", 0, INT64_MAX);
  if (fields.has("algorithm")) choice.algorithm = algorithm_in(fields);
  return choice;
}

}  // namespace

Json gemm_table_json(const GemmTable& table) {
  Json products = Json::array();
  for (const auto& choice : table.choices) products.push_back(choice_json(choice));
  return {{"library", table.library}, {"device", table.device}, {"products", std::move(products)}};
}

GemmTable gemm_table_in(const Json& json, const std::string& where) {
  if (!json.is_object()) throw std::runtime_error(where + ": need an object");
  const Fields fields(json, where);
  GemmTable table{
      .library = fields.string("library"), .device = fields.string("device"), .choices = {}};
  const auto& products = fields.at("products");
  if (!products.is_array() || products.size() > ops::GemmChoices::kMost)
    fields.fail("products", fmt::format("a list of at most {}", ops::GemmChoices::kMost));
  std::set<Gemm> known;
  for (const auto& product : products) {
    const auto place = fmt::format("{}: products[{}]", where, table.choices.size());
    table.choices.push_back(choice_in(product, place));
    if (!known.insert(table.choices.back().gemm).second)
      throw std::runtime_error(place + " is the same product as an earlier one");
  }
  return table;
}

std::string gemm_table_text(const GemmTable& table) {
  return gemm_table_json(table).dump(1) + "\n";
}

GemmTable parse_gemm_table(std::string_view text, const std::string& file) {
  return gemm_table_in(checkpoint::parse_json(text, file), file);
}

}  // namespace mgpu::train
