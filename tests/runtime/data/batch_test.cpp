#include "runtime/data/batch.hpp"

#include "tests/support/catch.hpp"

using namespace mgpu::data;

namespace {

using Numbers = std::vector<std::int32_t>;

}  // namespace

TEST_CASE("sequences are laid end to end, each with its own positions and targets", "[batch]") {
  const Numbers prompt{5, 6}, completion{7, 8, 9}, alone{3};
  BatchBuilder builder;
  builder.add({prompt, completion});
  builder.set_target(0, 11);
  builder.set_target(1, kNoTarget);
  builder.set_target(4, 0);
  builder.add({alone});
  builder.set_target(0, 12);
  const auto batch = builder.take();
  CHECK(batch.tokens == Numbers{5, 6, 7, 8, 9, 3});
  CHECK(batch.positions == Numbers{0, 1, 2, 3, 4, 0});
  CHECK(batch.targets == Numbers{11, kNoTarget, kNoTarget, kNoTarget, 0, 12});
  CHECK(batch.starts == Numbers{0, 5, 6});
  CHECK(batch.longest == 5);
  CHECK(batch.target_tokens == 3);
}

TEST_CASE("a batch without sequences has no tokens", "[batch]") {
  const auto batch = BatchBuilder().take();
  CHECK(batch.tokens.empty());
  CHECK(batch.starts == Numbers{0});
  CHECK(batch.target_tokens == 0);
}
