#include "runtime/rollout/allowed_sequences.hpp"

#include <map>
#include <random>
#include <set>
#include <vector>

#include "tests/support/catch.hpp"

namespace {

using mgpu::rollout::AllowedSequences;
using Tokens = AllowedSequences::Tokens;
using Catch::Matchers::Contains;

constexpr std::int32_t kEnd = 2;

AllowedSequences allowed(const std::vector<Tokens>& sequences) {
  return {sequences, kEnd};
}

Tokens next(const AllowedSequences& sequences, const Tokens& prefix) {
  auto node = AllowedSequences::kStart;
  for (const auto token : prefix) {
    node = sequences.after(node, token);
    if (node == AllowedSequences::kNotAllowed) return {};
  }
  const auto tokens = sequences.next(node);
  return {tokens.begin(), tokens.end()};
}

TEST_CASE("after each beginning exactly the tokens that continue a sequence are allowed",
          "[allowed]") {
  const auto some = allowed({{10, 20, 30}, {10, 20, 31}, {11, 20, 30}, {10, 1, 7, 8}});
  CHECK(next(some, {}) == Tokens{10, 11});
  CHECK(next(some, {10}) == Tokens{1, 20});
  CHECK(next(some, {11}) == Tokens{20});
  CHECK(next(some, {10, 20}) == Tokens{30, 31});
  CHECK(next(some, {11, 20}) == Tokens{30});
  CHECK(next(some, {10, 1, 7}) == Tokens{8});
  CHECK(some.after(AllowedSequences::kStart, 12) == AllowedSequences::kNotAllowed);
  CHECK(some.after(AllowedSequences::kStart, kEnd) == AllowedSequences::kNotAllowed);
  SECTION("the end token follows a whole sequence, and nothing follows the end token") {
    CHECK(next(some, {10, 20, 30}) == Tokens{kEnd});
    CHECK(next(some, {10, 1, 7, 8}) == Tokens{kEnd});
    CHECK(next(some, {10, 20, 30, kEnd}).empty());
  }
  SECTION("it knows their number, the longest one and their tokens") {
    CHECK(some.size() == 4);
    CHECK(some.longest() == 5);
    CHECK(some.end_token() == kEnd);
    CHECK(some.vocabulary() == Tokens{1, 7, 8, 10, 11, 20, 30, 31});
    CHECK(some.repetitions().empty());
  }
}

TEST_CASE("a sequence that begins another one may end or continue", "[allowed]") {
  const auto some = allowed({{5, 6, 7}, {5, 6}, {5}});
  CHECK(next(some, {5}) == Tokens{kEnd, 6});
  CHECK(next(some, {5, 6}) == Tokens{kEnd, 7});
  CHECK(next(some, {5, 6, 7}) == Tokens{kEnd});
  CHECK(next(some, {5, kEnd}).empty());
  CHECK(some.size() == 3);
}

TEST_CASE("a catalogue can have one sequence", "[allowed]") {
  const auto one = allowed({{9}});
  CHECK(next(one, {}) == Tokens{9});
  CHECK(next(one, {9}) == Tokens{kEnd});
  CHECK(one.size() == 1);
  CHECK(one.longest() == 2);
}

TEST_CASE("equal sequences are one, and the later ones are listed", "[allowed]") {
  const auto some = allowed({{5, 6}, {7}, {5, 6}, {8}, {7}, {5, 6}});
  CHECK(some.size() == 3);
  CHECK(next(some, {5}) == Tokens{6});
  const std::vector<AllowedSequences::Repetition> expected{{2, 0}, {4, 1}, {5, 0}};
  CHECK((some.repetitions() == expected));
}

TEST_CASE("a list of sequences that cannot be generated is rejected", "[allowed]") {
  CHECK_THROWS_WITH(allowed({}), "there is no allowed sequence");
  CHECK_THROWS_WITH(allowed({{5}, {}}), "allowed sequence 2 is empty");
  CHECK_THROWS_WITH(allowed({{5}, {6, kEnd, 7}}),
                    "allowed sequence 2 contains the end token 2, which is added to each one");
  CHECK_THROWS_WITH(allowed({{5, -1}}), "allowed sequence 1 contains the invalid token -1");
}

TEST_CASE("the allowed tokens equal those of a table of all beginnings", "[allowed]") {
  std::mt19937 random(3);
  for (const unsigned width : {1, 2, 5, 40}) {
    CAPTURE(width);
    std::vector<Tokens> sequences;
    for (int i = 0; i < 300; ++i) {
      Tokens sequence;
      for (auto n = 1 + random() % 5; n > 0; --n)
        sequence.push_back(3 + static_cast<std::int32_t>(random() % width));
      sequences.push_back(sequence);
    }
    std::map<Tokens, std::set<std::int32_t>> table;
    std::set<Tokens> different(sequences.begin(), sequences.end());
    for (const auto& sequence : different)
      for (std::size_t n = 0; n <= sequence.size(); ++n)
        table[{sequence.begin(), sequence.begin() + static_cast<std::ptrdiff_t>(n)}].insert(
            n < sequence.size() ? sequence[n] : kEnd);
    const auto some = allowed(sequences);
    CHECK(some.size() == different.size());
    CHECK(some.repetitions().size() == sequences.size() - different.size());
    for (const auto& [beginning, tokens] : table)
      CHECK(next(some, beginning) == Tokens(tokens.begin(), tokens.end()));
  }
}

}  // namespace
