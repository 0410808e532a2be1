#include "runtime/train/file_copies.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>

#include <filesystem>

#include "runtime/train/weights_io.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

using namespace mgpu;
using namespace mgpu::train;
using Catch::Matchers::Contains;
using mgpu::tests::TempDir;

namespace {

// A folder with two tensors, "a" and "b", of `size` elements each. Several pieces of work each.
struct Files {
  static constexpr std::int64_t kSize = 20'000'000;

  Files() {
    checkpoint::WeightsWriter writer(
        dir.root(),
        {{"a", checkpoint::DType::f32, {kSize}}, {"b", checkpoint::DType::f32, {kSize}}},
        /*longest_shard=*/1000);
    for (const char* name : {"a", "b"})
      writer.write(name, std::as_bytes(std::span(values.const_data_ptr<float>(), kSize)));
    writer.finish();
  }

  const TempDir dir{TempDir::in_memory()};
  const at::Tensor values = at::arange(kSize, at::kFloat);
};

}  // namespace

TEST_CASE("several threads copy the wanted elements of tensors from their files", "[file_copies]") {
  const Files files;
  const checkpoint::Weights weights(files.dir.root());
  const auto whole = at::zeros({Files::kSize}, at::kFloat), part = at::zeros({1000}, at::kFloat);
  FileCopies copies(at::kCPU, GENERATE(1, 4));
  copies.add(whole, weights.get("a"), 0);
  copies.add(part.narrow(0, 10, 990), weights.get("b"), 12345);
  copies.run();
  CHECK(at::equal(whole, files.values));
  CHECK(at::equal(part.narrow(0, 10, 990), files.values.narrow(0, 12345, 990)));
  CHECK(part.narrow(0, 0, 10).count_nonzero().item<std::int64_t>() == 0);
}

TEST_CASE("elements are only copied to memory of the same type", "[file_copies]") {
  const Files files;
  const checkpoint::Weights weights(files.dir.root());
  CHECK(FileCopies::can_copy(at::zeros({4}, at::kFloat), weights.get("a")));
  CHECK_FALSE(FileCopies::can_copy(at::zeros({4}, at::kBFloat16), weights.get("a")));
  CHECK_FALSE(FileCopies::can_copy(at::zeros({4, 4}, at::kFloat).t(), weights.get("a")));
}

TEST_CASE("a file that cannot be read to its end is named, whichever thread reads it",
          "[file_copies]") {
  const Files files;
  const checkpoint::Weights weights(files.dir.root());
  const auto shorter = weights.get("b").file;
  std::filesystem::resize_file(shorter, 40'000'000);
  const auto to = at::zeros({Files::kSize}, at::kFloat);
  FileCopies copies(at::kCPU, GENERATE(1, 4));
  for (int i = 0; i < 3; ++i) copies.add(to, weights.get("a"), 0);
  copies.add(to, weights.get("b"), 0);
  CHECK_THROWS_WITH(copies.run(),
                    Contains("cannot read " + shorter + ": another program has made it shorter"));
  copies.run();  // nothing is left to be copied
}
