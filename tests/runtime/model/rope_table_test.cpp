#include "runtime/model/rope_table.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/sin.h>

#include "runtime/model/rope.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu::model;

namespace {

ModelConfig with_heads_of(std::int64_t width) {
  ModelConfig config;
  config.head_dim = width;
  config.rope.theta = 1e6;
  return config;
}

}  // namespace

TEST_CASE("a rotary table has the same bits for any number of threads and positions", "[rope]") {
  const auto width = GENERATE(64, 96, 128);
  const auto config = with_heads_of(width);
  const auto threads = at::get_num_threads();
  at::set_num_threads(1);
  const auto one = rope_table(config, 3001, at::kCPU);
  at::set_num_threads(3);
  const auto three = rope_table(config, 3001, at::kCPU);
  at::set_num_threads(threads);
  CHECK(at::equal(one.cos, three.cos));
  CHECK(at::equal(one.sin, three.sin));
  const auto shorter = rope_table(config, 70, at::kCPU);
  CHECK(at::equal(shorter.cos, one.cos.narrow(0, 0, 70)));
  CHECK(at::equal(shorter.sin, one.sin.narrow(0, 0, 70)));
}

TEST_CASE("a rotary table has ATen's cosines and sines of fp32 angles", "[rope]") {
  const auto config = with_heads_of(64);
  auto frequencies = rope_frequencies(config.rope, 64);
  const auto angles =
      at::outer(at::arange(500, at::kFloat), at::from_blob(frequencies.data(), {32}, at::kFloat));
  const auto table = rope_table(config, 500, at::kCPU);
  CHECK(at::equal(table.cos, at::cos(angles)));
  CHECK(at::equal(table.sin, at::sin(angles)));
}
