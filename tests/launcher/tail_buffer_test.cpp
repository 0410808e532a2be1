#include "launcher/output/tail_buffer.hpp"

#include "tests/support/catch.hpp"

using namespace mgpu::launcher;

TEST_CASE("a tail is the end of all bytes, however they arrive", "[tail_buffer]") {
  const size_t step = GENERATE(range(1, 25));
  CAPTURE(step);
  std::string all;
  TailBuffer tail(10);
  for (char next = 'a'; next <= 'z';) {
    std::string piece;
    while (piece.size() < step && next <= 'z') piece += next++;
    all += piece;
    tail.append(piece);
    for (size_t count = 0; count <= 12; ++count)
      CHECK(tail.last(count) == all.substr(all.size() - std::min({count, all.size(), size_t{10}})));
  }
}
