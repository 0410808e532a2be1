#include "runtime/train/gemm_table.hpp"

#include <nlohmann/json.hpp>

#include "tests/support/catch.hpp"
#include "tests/support/fake_gemms.hpp"

using namespace mgpu;
using namespace mgpu::train;
using Catch::Matchers::Contains;
using Json = nlohmann::json;

namespace {

GemmTable some_table() {
  const ops::Gemm gemm{.rows = 8192,
                       .columns = 2048,
                       .depth = 1536,
                       .a_stride = 1536,
                       .b_stride = 1536,
                       .out_stride = 2048,
                       .b_transposed = true,
                       .bias = true};
  auto gradient = gemm;
  gradient.bias = false;
  gradient.type = at::kHalf;
  gradient.out_type = at::kFloat;
  gradient.accumulates = true;
  return {"cuBLASLt 130100",
          "NVIDIA H200",
          {{gemm, tests::algorithm_number(3), 2}, {gradient, std::nullopt, 5}}};
}

}  // namespace

TEST_CASE("written choices of algorithms are read back as the same", "[gemm]") {
  CHECK(parse_gemm_table(gemm_table_text(some_table()), "f") == some_table());
  const GemmTable empty{"a", "b", {}};
  CHECK(parse_gemm_table(gemm_table_text(empty), "f") == empty);
}

TEST_CASE("a file of choices that cannot be used is refused with the place and the key", "[gemm]") {
  const auto [key, value, why] = GENERATE(table<const char*, Json, const char*>(
      {{"rows", 0, "f: products[0]: rows must be a whole number from 1"},
       {"depth", nullptr, "f: products[0]: depth"},
       {"out_stride", 1.5, "f: products[0]: out_stride must be a whole number"},
       {"a_transposed", 1, "f: products[0]: a_transposed must be true or false"},
       {"type", "fp8", "f: products[0]: type must be bf16, fp16 or fp32"},
       {"from_step", -1, "f: products[0]: from_step must be a whole number from 0"},
       {"algorithm", "00", "f: products[0]: algorithm must be 128 hexadecimal digits, or null"},
       {"algorithm", std::string(128, 'g'), "must be 128 hexadecimal digits"},
       {"algorithm", 5, "f: products[0]: algorithm must be a string"},
       {"workspace", -1, "f: products[0]: workspace must be a whole number"}}));
  CAPTURE(key);
  auto json = gemm_table_json(some_table());
  json["products"][0][key] = value;
  CHECK_THROWS_WITH(parse_gemm_table(json.dump(), "f"), Contains(why));
}

TEST_CASE("choices without their library, or for one product twice, are refused", "[gemm]") {
  auto json = gemm_table_json(some_table());
  CHECK_THROWS_WITH(parse_gemm_table("[]", "f"), Contains("f: need an object"));
  CHECK_THROWS_WITH(parse_gemm_table("{", "f"), Contains("f"));
  json["products"].push_back(json["products"][0]);
  CHECK_THROWS_WITH(parse_gemm_table(json.dump(), "f"),
                    Contains("f: products[2] is the same product as an earlier one"));
  json["products"] = Json::array({1});
  CHECK_THROWS_WITH(parse_gemm_table(json.dump(), "f"),
                    Contains("f: products[0] must be an object"));
  json["products"] = 1;
  CHECK_THROWS_WITH(parse_gemm_table(json.dump(), "f"), Contains("f: products must be a list"));
  json.erase("library");
  CHECK_THROWS_WITH(parse_gemm_table(json.dump(), "f"), Contains("f: library is missing"));
}
