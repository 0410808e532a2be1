#include "rendezvous/frame.hpp"

#include <vector>

#include "rendezvous/protocol.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu::rendezvous;

namespace {

std::string framed(std::string_view body) {
  std::string out;
  put_frame(out, body);
  return out;
}

std::vector<std::string> all_of(FrameReader& reader) {
  std::vector<std::string> bodies;
  std::string_view body;
  while (reader.next(body)) bodies.emplace_back(body);
  return bodies;
}

}  // namespace

TEST_CASE("a frame is a little-endian length and a body", "[frame]") {
  CHECK(framed("ab") == std::string("\2\0\0\0ab", 6));
  CHECK(framed(std::string(0x0201, 'x')).substr(0, 4) == std::string("\1\2\0\0", 4));
}

TEST_CASE("frames are extracted wherever the stream is cut", "[frame]") {
  const std::vector<std::string> bodies = {"hello", "", std::string("\0\1\2", 3), "end"};
  std::string stream;
  for (const auto& body : bodies) put_frame(stream, body);
  for (std::size_t first = 0; first <= stream.size(); ++first)
    for (std::size_t second = first; second <= stream.size(); ++second) {
      FrameReader reader;
      std::vector<std::string> got;
      for (const auto& piece :
           {stream.substr(0, first), stream.substr(first, second - first), stream.substr(second)}) {
        reader.add(piece);
        for (auto& body : all_of(reader)) got.push_back(std::move(body));
      }
      REQUIRE(got == bodies);
      REQUIRE(reader.empty());
    }
}

TEST_CASE("a reader reports whether bytes are left", "[frame]") {
  FrameReader reader;
  CHECK(reader.empty());
  reader.add("\1");
  CHECK(all_of(reader).empty());
  CHECK_FALSE(reader.empty());
  reader.add(std::string_view("\0\0\0x", 4));
  CHECK(all_of(reader) == std::vector<std::string>{"x"});
  CHECK(reader.empty());
}

TEST_CASE("a body up to the limit is accepted, and a longer one is rejected before it arrives",
          "[frame]") {
  FrameReader reader;
  reader.limit(100);
  reader.add(framed(std::string(100, 'x')));
  CHECK(all_of(reader) == std::vector<std::string>{std::string(100, 'x')});

  reader.add(framed(std::string(101, 'x')).substr(0, kFrameHeaderBytes));
  std::string_view body;
  CHECK_THROWS_AS(reader.next(body), ProtocolError);
}

TEST_CASE("the largest possible length does not overflow", "[frame]") {
  FrameReader reader;
  reader.add("\xff\xff\xff\xff");
  std::string_view body;
  CHECK_THROWS_WITH(reader.next(body), "a frame of 4294967295 bytes is too long");
}
