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

TEST_CASE("the pieces of a batch contain each sequence once, in order", "[batch]") {
  const std::vector<std::size_t> lengths =
      GENERATE(std::vector<std::size_t>{5, 1, 7, 7, 2, 9, 1}, std::vector<std::size_t>{90, 1, 1, 1},
               std::vector<std::size_t>{1, 1, 1, 90}, std::vector<std::size_t>{4});
  const std::size_t pieces = GENERATE(1, 2, 4, 8);
  BatchBuilder builder;
  std::int32_t token = 0;
  for (const auto length : lengths) {
    Numbers tokens(length);
    for (auto& t : tokens) t = ++token;
    builder.add({tokens});
    for (std::size_t i = 0; i + 1 < length; i += 2) builder.set_target(i, tokens[i + 1]);
  }
  const auto batch = builder.take();

  Numbers tokens, positions, targets;
  std::int64_t target_tokens = 0;
  std::size_t sequences = 0;
  for (std::size_t number = 0; number < pieces; ++number) {
    const auto piece = piece_of(batch, number, pieces);
    target_tokens += piece.target_tokens;
    if (piece.tokens == Numbers{0}) {
      CHECK(piece.starts == Numbers{0, 1});
      CHECK(piece.targets == Numbers{kNoTarget});
      continue;
    }
    sequences += piece.starts.size() - 1;
    tokens.insert(tokens.end(), piece.tokens.begin(), piece.tokens.end());
    positions.insert(positions.end(), piece.positions.begin(), piece.positions.end());
    targets.insert(targets.end(), piece.targets.begin(), piece.targets.end());
  }
  CHECK(sequences == lengths.size());
  CHECK(tokens == batch.tokens);
  CHECK(positions == batch.positions);
  CHECK(targets == batch.targets);
  CHECK(target_tokens == batch.target_tokens);
}

TEST_CASE("a batch is divided where the tokens are halved, and a single sequence never",
          "[batch]") {
  BatchBuilder builder;
  for (const int length : {2, 3, 4, 10}) {
    const Numbers tokens(static_cast<std::size_t>(length), 7);
    builder.add({tokens});
  }
  const auto batch = builder.take();
  CHECK(piece_of(batch, 0, 2).starts == Numbers{0, 2, 5, 9});
  CHECK(piece_of(batch, 1, 2).starts == Numbers{0, 10});
  CHECK(piece_of(batch, 0, 4).starts == Numbers{0, 2, 5});
  CHECK(piece_of(batch, 1, 4).starts == Numbers{0, 4});
  CHECK(piece_of(batch, 2, 4).starts == Numbers{0, 10});
  CHECK(piece_of(batch, 3, 4).tokens == Numbers{0});
}

TEST_CASE("branches continue the positions of their beginning", "[batch]") {
  const Numbers first{5, 6}, second{7}, a{10, 11}, b{12}, c{13, 14, 15};
  BatchBuilder builder;
  builder.add({first});
  builder.add({second});
  builder.add_branch(0, {a});
  builder.set_target(1, 20);
  builder.add_branch(0, {b});
  builder.add_branch(1, {b, c});
  builder.set_target(0, 21);
  const auto batch = builder.take();
  CHECK(batch.tokens == Numbers{5, 6, 7, 10, 11, 12, 12, 13, 14, 15});
  CHECK(batch.positions == Numbers{0, 1, 0, 2, 3, 2, 1, 2, 3, 4});
  CHECK(batch.starts == Numbers{0, 2, 3, 5, 6, 10});
  CHECK(batch.branches == Numbers{2, 4, 5});
  CHECK(batch.longest == 4);
  CHECK(batch.targets[4] == 20);
  CHECK(batch.targets[6] == 21);
  CHECK(batch.target_tokens == 2);
  CHECK_THROWS(piece_of(batch, 0, 2));
}

TEST_CASE("a branch that cannot be laid out is refused", "[batch]") {
  const Numbers some{5, 6};
  BatchBuilder builder;
  CHECK_THROWS(builder.add_branch(0, {some}));  // no such beginning
  builder.add({some});
  builder.add({some});
  CHECK_THROWS(builder.add_branch(1, {some}));  // before those of beginning 0
  builder.add_branch(0, {some});
  CHECK_THROWS(builder.add({some}));  // a sequence behind a branch
  CHECK_THROWS(builder.take());       // beginning 1 has no branch
  builder.add_branch(1, {some});
  CHECK_THROWS(builder.add_branch(0, {some}));
  CHECK_THROWS(builder.add_branch(2, {some}));
  CHECK(builder.take().branches == Numbers{2, 3, 4});
}
