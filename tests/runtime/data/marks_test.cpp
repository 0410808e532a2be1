#include <random>
#include <string>

#include "runtime/data/marks.hpp"
#include "tests/runtime/data/toy_encoder.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu::data;
using mgpu::tests::ToyEncoder;

namespace {

Coder coder_of(const ToyEncoder& encoder) {
  return {.encode = [&](std::string_view text) { return encoder.encode(text, false); },
          .decode = [&](std::span<const std::int32_t> ids) { return encoder.decode(ids); }};
}

}  // namespace

TEST_CASE("the marks equal those of an encoder with token offsets", "[marks]") {
  const ToyEncoder encoder;
  std::mt19937 random(1);
  int merged = 0;
  for (int round = 0; round < 2000; ++round) {
    // Only a and b, so many ends of spans fall inside the token "ab".
    std::string text;
    for (std::size_t i = random() % 30; i > 0; --i) text += random() % 8 ? "ab"[random() % 2] : '.';
    ByteSpans spans;
    for (std::size_t at = random() % 5; at < text.size(); at += 1 + random() % 6) {
      const std::size_t end = std::min(text.size(), at + random() % 5);
      spans.emplace_back(at, end);
      at = end;
    }
    const MarkedIds expected = encoder.encode_marked(text, spans);
    const MarkedIds found = encode_marked(coder_of(encoder), text, spans);
    CAPTURE(text, spans);
    REQUIRE(found.ids == expected.ids);
    REQUIRE(found.marked == expected.marked);
    for (const auto& [begin, end] : spans)
      merged += begin > 0 && begin < end && text[begin - 1] == 'a' && text[begin] == 'b';
  }
  CHECK(merged > 100);
}

TEST_CASE("marks are correct with an encoder that rewrites the text", "[marks]") {
  // Puts a space before every text, as Llama-2's does, and writes "ss" for "z".
  const Coder coder{
      .encode =
          [](std::string_view text) {
            std::vector<std::int32_t> ids = {' '};
            for (const char c : text)
              if (c == 'z')
                ids.insert(ids.end(), {'s', 's'});
              else
                ids.push_back(c);
            return ids;
          },
      .decode =
          [](std::span<const std::int32_t> ids) { return std::string(ids.begin(), ids.end()); }};
  const MarkedIds found = encode_marked(coder, "Qz:yz;Q:z", {{3, 6}, {8, 9}});
  std::string marked;
  for (std::size_t i = 0; i < found.ids.size(); ++i)
    if (found.marked[i]) marked += static_cast<char>(found.ids[i]);
  CHECK(marked == "yss;ss");
}
