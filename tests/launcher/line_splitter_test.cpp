#include "launcher/output/line_splitter.hpp"

#include "tests/support/catch.hpp"

using namespace mgpu::launcher;

namespace {

// The output for `text` given in pieces of `step` bytes.
std::vector<std::string> fed(std::string_view text, size_t step,
                             LineSplitter splitter = LineSplitter()) {
  std::vector<std::string> out;
  const auto take = [&](std::string_view lines) { out.emplace_back(lines); };
  for (size_t at = 0; at < text.size(); at += step) splitter.feed(text.substr(at, step), take);
  splitter.finish("", take);
  return out;
}

std::string joined(const std::vector<std::string>& parts) {
  std::string all;
  for (const auto& part : parts) all += part;
  return all;
}

}  // namespace

TEST_CASE("output is complete and in whole lines however the bytes arrive", "[line_splitter]") {
  const std::string text = "one\ntwo\r\n\n\rbar 1\rbar 2\r\nthree\n\r\r\nlast";
  for (size_t step = 1; step <= text.size(); ++step) {
    const auto parts = fed(text, step);
    CAPTURE(step);
    CHECK(joined(parts) == text);
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      const char end = parts[i].back();
      CHECK((end == '\n' || end == '\r'));
      // \r\n is one line end, never cut in two
      if (end == '\r') CHECK(parts[i + 1].front() != '\n');
    }
  }
}

TEST_CASE("a line that is too long is split with a mark", "[line_splitter]") {
  const auto parts = fed(std::string(25, 'x') + "\ny\n", 7, LineSplitter(10));
  CHECK(joined(parts) == "xxxxxxxxxx [line goes on]\nxxxxxxxxxx [line goes on]\nxxxxx\ny\n");
}

TEST_CASE("every line gets its prefix", "[line_splitter]") {
  CHECK(with_prefix("[0]:", "a\nb\r\n\rbar\r") == "[0]:a\n[0]:b\r\n[0]:\r[0]:bar\r");
  CHECK(with_prefix("[0]:", "no end") == "[0]:no end");
}
