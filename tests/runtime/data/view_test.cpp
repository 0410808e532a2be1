#include "runtime/data/view.hpp"

#include "tests/runtime/data/support.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu::data;
using namespace mgpu::tests;

TEST_CASE("tokens with a loss are marked, or coloured", "[view]") {
  const TempDir dir(TempDir::in_memory());
  write(dir.path("a.jsonl"), "{\"prompt\": \"a\\u001b\\nb\", \"completion\": \"cd\"}\n");
  const ToyEncoder encoder;
  const auto prepared = prepare({{dir.path("a.jsonl")}}, {.cache = dir.path("cache")}, encoder);
  CHECK(shown_example(prepared.dataset[0], encoder, false) == "a\\x1b\nb⟦cd<eos>⟧");
  CHECK(shown_example(prepared.dataset[0], encoder, true) ==
        "\x1b[2ma\\x1b\nb\x1b[0m\x1b[32mcd\x1b[0m\x1b[1;32m<eos>\x1b[0m");
}

TEST_CASE("a line feed is shown where the loss ends with it", "[view]") {
  const TempDir dir(TempDir::in_memory());
  write(dir.path("a.jsonl"), R"({"input_ids": [97, 10, 98, 10, 99, 10], "labels": )"
                             "[-100, -100, 98, 10, -100, -100]}\n");
  const ToyEncoder encoder;
  const auto prepared = prepare({{dir.path("a.jsonl")}}, {.cache = dir.path("cache")}, encoder);
  CHECK(shown_example(prepared.dataset[0], encoder, false) == "a\n⟦b↵⟧\nc");
  CHECK(shown_example(prepared.dataset[0], encoder, true) ==
        "\x1b[2ma\x1b[0m\n\x1b[32mb↵\x1b[0m\n\x1b[2mc\x1b[0m");
}

TEST_CASE("a space where the loss begins stays", "[view]") {
  struct StrippingEncoder : ToyEncoder {
    std::string decode(std::span<const std::int32_t> ids) const override {
      const auto text = ToyEncoder::decode(ids);
      return text.starts_with(' ') ? text.substr(1) : text;
    }
  };
  const TempDir dir(TempDir::in_memory());
  write(dir.path("a.jsonl"), R"({"prompt": " a", "completion": " b"})"
                             "\n");
  const StrippingEncoder encoder;
  const auto prepared = prepare({{dir.path("a.jsonl")}}, {.cache = dir.path("cache")}, encoder);
  CHECK(shown_example(prepared.dataset[0], encoder, false) == "a⟦ b<eos>⟧");
}

TEST_CASE("a histogram has a line per range of lengths", "[view]") {
  CHECK(histogram({}).empty());
  CHECK(histogram(std::vector<std::uint32_t>{5}).size() == 5);
  const auto lines = histogram(std::vector<std::uint32_t>{1, 60, 200, 200, 1200});
  REQUIRE(lines.size() == 12);
  CHECK(lines[0] == "   1-100   2  " + std::string(40, '#'));
  CHECK(lines[1] == " 101-200   2  " + std::string(40, '#'));
  CHECK(lines[2] == " 201-300   0");
  CHECK(lines[11] == "1101-1200  1  " + std::string(20, '#'));
}
