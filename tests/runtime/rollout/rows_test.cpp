#include "runtime/rollout/rows.hpp"

#include <ATen/ops/full.h>

#include "tests/support/catch.hpp"

using namespace mgpu;
using rollout::Rows;
using rollout::rows_for;

namespace {

std::vector<std::int32_t> ints(const at::Tensor& tensor) {
  const auto flat = tensor.contiguous();
  const auto* data = flat.const_data_ptr<std::int32_t>();
  return {data, data + flat.numel()};
}

}  // namespace

TEST_CASE("a GPU uses few batch sizes, a CPU exactly the number of sequences") {
  CHECK(rows_for(7, 64, at::kCPU) == 7);
  std::vector<std::int64_t> sizes;
  for (std::int64_t count = 1; count <= 256; ++count) {
    const auto rows = rows_for(count, 256, at::kCUDA);
    CHECK(rows >= count);
    CHECK(rows < count * 2);
    if (sizes.empty() || sizes.back() != rows) sizes.push_back(rows);
  }
  CHECK(sizes == std::vector<std::int64_t>{1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256});
  CHECK(rows_for(70, 80, at::kCUDA) == 80);  // never more than the maximum
  CHECK(rows_for(80, 80, at::kCUDA) == 80);
}

TEST_CASE("tables of pages have few widths, and short sequences a narrow one") {
  using rollout::table_pages_for;
  std::vector<std::int64_t> widths;
  for (std::int64_t count = 1; count <= 1000; ++count) {
    const auto pages = table_pages_for(count, 1000);
    CHECK(pages >= count);
    if (widths.empty() || widths.back() != pages) widths.push_back(pages);
  }
  CHECK(widths == std::vector<std::int64_t>{127, 254, 508, 1000});
  CHECK(table_pages_for(3, 40) == 40);
}

TEST_CASE("a few steps use a recorded size with which they take about the same time") {
  using rollout::rows_for_few_steps;
  const std::vector<std::int64_t> recorded{16, 48, 96};
  CHECK(rows_for_few_steps(8, recorded, at::kBFloat16) == 16);
  CHECK(rows_for_few_steps(16, recorded, at::kBFloat16) == 16);
  CHECK(rows_for_few_steps(24, recorded, at::kHalf) == 48);
  CHECK(rows_for_few_steps(64, recorded, at::kBFloat16) == 64);  // 96 take longer
  CHECK(rows_for_few_steps(128, recorded, at::kBFloat16) == 128);
  CHECK(rows_for_few_steps(8, recorded, at::kFloat) == 8);
  CHECK(rows_for_few_steps(8, {}, at::kBFloat16) == 8);
}

TEST_CASE("padding rows write to page 0, also after other sequences") {
  Rows rows({.rows = 4, .pages = 3, .burst = 2}, at::kCPU);
  const std::vector<std::int32_t> long_one{5, 6, 7}, short_one{9};
  rows.fill({{.token = 1, .position = 40, .drawn = 8, .seed = 11, .pages = &long_one},
             {.token = 2, .position = 3, .drawn = 1, .seed = 12, .pages = &short_one},
             {.token = 3, .position = 4, .drawn = 2, .seed = 13, .pages = &short_one}});
  CHECK(ints(rows.input().table) == std::vector<std::int32_t>{5, 6, 7, 9, 0, 0, 9, 0, 0, 0, 0, 0});
  rows.fill({{.token = 4, .position = 2, .drawn = 1, .seed = 14, .pages = &short_one}});
  CHECK(ints(rows.input().table) == std::vector<std::int32_t>{9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0});
  CHECK(ints(rows.input().tokens) == std::vector<std::int32_t>{4, 0, 0, 0});
  CHECK(ints(rows.input().positions) == std::vector<std::int32_t>{2, 0, 0, 0});
}

TEST_CASE("a burst stores the sampled tokens and uses them as the next input") {
  Rows rows({.rows = 2, .pages = 1, .burst = 2, .vocabulary = 10}, at::kCPU);
  const std::vector<std::int32_t> page{1};
  rows.fill({{.token = 1, .position = 3, .drawn = 1, .seed = 7, .pages = &page},
             {.token = 2, .position = 5, .drawn = 4, .seed = 8, .pages = &page}});
  for (const int step : {0, 1}) {
    // Token -1: the logits had no finite softmax.
    rows.draw().tokens.fill_(step == 0 ? 6 : -1);
    rows.draw().log_probs.fill_(-.5 - step);
    rows.advance();
  }
  const auto results = rows.results(2);
  results.wait();
  CHECK(results.token(0, 1) == 6);
  CHECK(results.token(1, 1) == -1);
  CHECK(results.log_prob(0, 0) == -.5F);
  CHECK(results.log_prob(1, 0) == -1.5F);
  CHECK(ints(rows.input().tokens) == std::vector<std::int32_t>{0, 0});
  CHECK(ints(rows.input().positions) == std::vector<std::int32_t>{5, 7});
  CHECK(ints(rows.draw().counters) == std::vector<std::int32_t>{3, 6});
  CHECK(rows.seen().select(1, 6).all().item<bool>());
  CHECK_FALSE(rows.seen().select(1, 5).any().item<bool>());
}

TEST_CASE("results stay as they are when the next burst runs") {
  Rows rows({.rows = 1, .pages = 1, .burst = 2}, at::kCPU);
  const std::vector<std::int32_t> page{1};
  const auto run = [&](std::int32_t token) {
    rows.draw().tokens.fill_(token);
    rows.draw().log_probs.fill_(-token);
    rows.advance();
  };
  rows.fill({{.token = 1, .position = 3, .drawn = 1, .seed = 7, .pages = &page}});
  run(5);
  run(6);
  const auto first = rows.results(2);
  rows.fill({{.from = 0, .position = 5, .drawn = 3, .seed = 7, .pages = &page}}, rows.state());
  run(8);
  const auto second = rows.results(1);
  CHECK(first.token(0, 0) == 5);
  CHECK(first.log_prob(1, 0) == -6);
  CHECK(second.token(0, 0) == 8);
  CHECK(second.log_prob(0, 0) == -8);
}

TEST_CASE("sequences that go on keep their tokens when their rows change") {
  const std::vector<std::int32_t> page{1};
  const auto row = [&](std::int32_t from, std::int32_t token = 0) {
    return Rows::Row{.from = from, .token = token, .pages = &page};
  };
  Rows rows({.rows = 3, .pages = 1, .burst = 1, .vocabulary = 10}, at::kCPU);
  rows.fill({row(Rows::kNew, 4), row(Rows::kNew, 5), row(Rows::kNew, 6)});
  CHECK(ints(rows.input().tokens) == std::vector<std::int32_t>{4, 5, 6});
  rows.seen().zero_();
  rows.advance();
  SECTION("in the same tensors") {
    rows.fill({row(2), row(Rows::kNew, 7), row(0)}, rows.state());
    CHECK(ints(rows.input().tokens) == std::vector<std::int32_t>{6, 7, 4});
    CHECK(rows.seen().select(0, 0).select(0, 6).item<bool>());
    CHECK_FALSE(rows.seen().select(0, 0).select(0, 4).item<bool>());
    CHECK(rows.seen().select(0, 2).select(0, 4).item<bool>());
  }
  SECTION("in those of another number of rows") {
    Rows fewer({.rows = 2, .pages = 1, .burst = 1, .vocabulary = 10}, at::kCPU);
    fewer.fill({row(1)}, rows.state());
    CHECK(ints(fewer.input().tokens) == std::vector<std::int32_t>{5, 0});
    CHECK(fewer.seen().select(0, 0).select(0, 5).item<bool>());
    Rows more({.rows = 4, .pages = 1, .burst = 1, .vocabulary = 10}, at::kCPU);
    more.fill({row(1), row(0), row(Rows::kNew, 9), row(2)}, rows.state());
    CHECK(ints(more.input().tokens) == std::vector<std::int32_t>{5, 4, 9, 6});
  }
  SECTION("without moving anything if the rows are the same") {
    rows.fill({row(0), row(1)}, rows.state());
    CHECK(ints(rows.input().tokens) == std::vector<std::int32_t>{4, 5, 6});
    CHECK(rows.seen().select(0, 1).select(0, 5).item<bool>());
  }
}
