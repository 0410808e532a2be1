#include "runtime/checkpoint/nf4.hpp"

#include <cmath>
#include <random>

#include "runtime/checkpoint/floats.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

using namespace mgpu::checkpoint;
using Catch::Matchers::Contains;
using mgpu::tests::TempDir;

namespace {

std::vector<float> random_values(std::size_t count) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal(0, 0.02f);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

std::vector<NamedBytes> small_parts(bool nested) {
  return nf4_parts("w", quantize_nf4(random_values(96), {2, 48}, DType::bf16, nested));
}

void write(const TempDir& dir, const std::vector<NamedBytes>& parts) {
  std::vector<TensorPlan> plan;
  for (const auto& part : parts) plan.push_back(part.plan);
  WeightsWriter writer(dir.root(), plan);
  for (const auto& part : parts) writer.write(part.plan.name, part.bytes);
  writer.finish();
}

NamedBytes& part(std::vector<NamedBytes>& parts, const std::string& name) {
  for (auto& one : parts)
    if (one.plan.name == "w" + name) return one;
  throw std::runtime_error("no part " + name);
}

}  // namespace

TEST_CASE("an element becomes the nearest level, and the lower one at a midpoint", "[nf4]") {
  for (int i = 0; i < 16; ++i) CHECK(nf4_index(kNf4Levels[static_cast<std::size_t>(i)]) == i);
  CHECK(nf4_index(0.03979014977812767f) == 7);
  CHECK(nf4_index(std::nextafter(0.03979014977812767f, 1.0f)) == 8);
  CHECK(nf4_index(-0.8480964004993439f) == 0);
  CHECK(nf4_index(-0.0f) == 7);
}

TEST_CASE("two elements share a byte, the first in its high half", "[nf4]") {
  std::vector<float> values(64, 0.0f);
  values[0] = 2;
  values[1] = -2;
  const Nf4Tensor tensor = quantize_nf4(values, {64}, DType::f32, false);
  CHECK(tensor.packed[0] == 0xf0);
  CHECK(tensor.packed[1] == 0x77);
  CHECK(tensor.scales == std::vector<float>{2});
  CHECK(dequantize_nf4(tensor) == values);
}

TEST_CASE("nested scales lie close to the scales", "[nf4]") {
  const auto values = random_values(64 * 300);
  const auto plain = block_scales(quantize_nf4(values, {300, 64}, DType::f32, false));
  const Nf4Tensor nested = quantize_nf4(values, {300, 64}, DType::f32, true);
  REQUIRE(nested.nested);
  CHECK(nested.scales.empty());
  CHECK(nested.nested->scales.size() == 2);
  const auto near = block_scales(nested);
  for (std::size_t i = 0; i < plain.size(); ++i)
    CHECK(std::abs(near[i] - plain[i]) <= nested.nested->scales[i / 256] * 0.011f);
}

TEST_CASE("values that are not finite cannot be quantized", "[nf4]") {
  std::vector<float> values(64, 1.0f);
  values[GENERATE(0u, 63u)] = GENERATE(INFINITY, NAN);
  CHECK_THROWS_WITH(quantize_nf4(values, {64}, DType::f32, false), Contains("in 4 bits"));
  CHECK_THROWS_WITH(quantize_nf4(values, {63}, DType::f32, false), Contains("shape [63]"));
}

TEST_CASE("a 4-bit tensor survives writing and reading", "[nf4]") {
  const TempDir dir(TempDir::in_memory());
  const bool nested = GENERATE(false, true);
  const auto shape = GENERATE(std::vector<std::int64_t>{300, 70}, std::vector<std::int64_t>{3, 3},
                              std::vector<std::int64_t>{1});
  std::size_t count = 1;
  for (const auto side : shape) count *= static_cast<std::size_t>(side);
  const Nf4Tensor tensor = quantize_nf4(random_values(count), shape, DType::f16, nested);
  write(dir, nf4_parts("w", tensor));
  const Weights weights(dir.root());
  REQUIRE(is_nf4(weights, "w"));
  CHECK_FALSE(is_nf4(weights, "v"));
  const Nf4Tensor read = read_nf4(weights, "w");
  CHECK(read.dtype == DType::f16);
  CHECK(read.shape == shape);
  CHECK(read.packed == tensor.packed);
  CHECK(dequantize_nf4(read) == dequantize_nf4(tensor));
}

TEST_CASE("parts that do not fit together are reported by name", "[nf4]") {
  const TempDir dir(TempDir::in_memory());
  auto parts = small_parts(GENERATE(false, true));
  const bool nested = parts.size() == 6;
  const auto read = [&] {
    write(dir, parts);
    read_nf4(Weights(dir.root()), "w");
  };
  const auto shorten = [&](const std::string& name, std::size_t bytes, std::int64_t left) {
    part(parts, name).bytes.resize(bytes);
    part(parts, name).plan.shape = {left};
  };
  const auto replace_in_state = [&](const std::string& from, const std::string& to) {
    NamedBytes& state = part(parts, ".quant_state.bitsandbytes__nf4");
    std::string text(text_of(state.bytes));
    text.replace(text.find(from), from.size(), to);
    state.bytes.assign(bytes_of(text).begin(), bytes_of(text).end());
    state.plan.shape = {static_cast<std::int64_t>(text.size())};
  };
  SECTION("too few elements") {
    shorten("", 47, 47);
    CHECK_THROWS_WITH(read(), Contains("'w' in 4 bits: it has 47 elements, not 48"));
  }
  SECTION("too few scales") {
    shorten(".absmax", nested ? 1 : 4, 1);
    CHECK_THROWS_WITH(read(), Contains("'w.absmax'") && Contains("has 1 elements, not 2"));
  }
  SECTION("another type of scales") {
    part(parts, ".absmax").plan.dtype = nested ? DType::i8 : DType::i32;
    CHECK_THROWS_WITH(read(), Contains("'w.absmax'") && Contains("has dtype I"));
  }
  SECTION("other levels") {
    part(parts, ".quant_map").bytes[5] ^= std::byte{1};
    CHECK_THROWS_WITH(read(), Contains("'w.quant_map'") && Contains("for level 1"));
  }
  SECTION("levels are missing") {
    std::erase_if(parts, [](const auto& one) { return one.plan.name == "w.quant_map"; });
    CHECK_THROWS_WITH(read(), Contains("'w.quant_map' is missing"));
  }
  SECTION("other blocks") {
    replace_in_state("\"blocksize\":64", "\"blocksize\":128");
    CHECK_THROWS_WITH(read(), Contains("blocksize must be 64, not 128"));
  }
  SECTION("fp4") {
    replace_in_state("nf4", "fp4");
    CHECK_THROWS_WITH(read(), Contains("quant_type must be 'nf4', not 'fp4'"));
  }
  SECTION("an invalid shape") {
    replace_in_state("[2,48]", "[4611686018427387904,48]");
    CHECK_THROWS_WITH(read(), Contains("invalid shape"));
  }
}

TEST_CASE("16-bit floats are rounded to nearest even", "[floats]") {
  const std::vector<float> values = {1.0f, -0.1f, 1.00390625f, 1.01171875f, 65504.0f, 1e-8f};
  CHECK(to_floats(DType::bf16, from_floats(DType::bf16, values)) ==
        std::vector<float>{1.0f, -0.10009765625f, 1.0f, 1.015625f, 65536.0f,
                           1.0011717677116394e-08f});
  CHECK(to_floats(DType::f16, from_floats(DType::f16, values)) ==
        std::vector<float>{1.0f, -0.0999755859375f, 1.00390625f, 1.01171875f, 65504.0f, 0.0f});
  CHECK(to_floats(DType::f32, from_floats(DType::f32, values)) == values);
  CHECK(std::isnan(to_floats(DType::bf16, from_floats(DType::bf16, std::vector{NAN}))[0]));
  CHECK_THROWS_WITH(to_floats(DType::i32, {}), "I32 is not F32, BF16 or F16");
}
