#include <algorithm>
#include <string>
#include <string_view>

#include "rendezvous/http/message.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu::rendezvous::http;

namespace {

struct Read {
  int status = 0;
  std::string body;
  bool done = false;

  friend bool operator==(const Read&, const Read&) = default;
};

Read read_in_pieces(std::string_view bytes, std::size_t size, bool end) {
  ResponseParser parser;
  for (; !bytes.empty(); bytes.remove_prefix(std::min(size, bytes.size())))
    parser.feed(bytes.substr(0, size));
  if (end) parser.end();
  return {parser.status(), parser.take_body(), parser.done()};
}

Read response_in(std::string_view bytes, bool end = false) {
  const auto whole = read_in_pieces(bytes, bytes.size() + 1, end);
  for (const std::size_t size : {1, 2, 3, 7}) CHECK(read_in_pieces(bytes, size, end) == whole);
  return whole;
}

}  // namespace

TEST_CASE("an HTTP response is parsed however it is cut", "[http]") {
  const Read good{200, "hello", true};
  CHECK(response_in("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello") == good);
  CHECK(response_in("HTTP/1.1 200 \r\ncontent-LENGTH:5 \r\n\r\nhellomore") == good);
  CHECK(response_in(
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello") ==
        good);
  CHECK(response_in(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\n"
            "Grpc-Trailer: x\r\n\r\n") == good);
  CHECK(response_in("HTTP/1.0 200 OK\r\n\r\nhello", true) == good);
  CHECK(response_in("HTTP/1.1 204 No Content\r\n\r\n") == Read{204, "", true});
  CHECK(response_in("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n") == Read{404, "", true});
  // Up to the limit of the header.
  CHECK(response_in("HTTP/1.1 200 OK\r\nX: " + std::string(12'000, 'x') +
                    "\r\nContent-Length: 5\r\n\r\nhello") == good);
}

TEST_CASE("chunks are available before the response ends", "[http]") {
  ResponseParser parser;
  parser.feed("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n3\r\ntw");
  CHECK(parser.begun());
  CHECK_FALSE(parser.done());
  CHECK(parser.take_body() == "onetw");
  parser.feed("o\r\n0\r\n\r\n");
  CHECK(parser.take_body() == "o");
  CHECK(parser.done());
}

TEST_CASE("another protocol than HTTP is detected at its first bytes", "[http]") {
  const std::string_view greeting =
      GENERATE("SSH-2.0-OpenSSH\r\n", "\x15\x03\x01", "220 mail", "HTTP/2 200\r\n", "X",
               "HTTP/1.1 abc OK\r\n", "HTTP/1.1  200\r\n", "HTTP/1.1 99\r\n", "HTTP/1.1 2000 x\r\n",
               "HTTP/1.1 099 x\r\n", "HTTP/1.1 200 OK\r\nno colon\r\n", "HTTP/1.1 200 OK\nX: y\n");
  CAPTURE(greeting);
  CHECK_THROWS_WITH(ResponseParser().feed(greeting), "it does not speak HTTP");
}

TEST_CASE("a response with an ambiguous end is rejected", "[http]") {
  const std::string head = "HTTP/1.1 200 OK\r\n";
  const std::string chunked = head + "Transfer-Encoding: chunked\r\n\r\n";
  for (const auto& text :
       {head + "Content-Length: 1\r\nContent-Length: 2\r\n\r\n",
        head + "Content-Length: -1\r\n\r\n", head + "Content-Length: 99999999999999999999\r\n\r\n",
        head + "Content-Length: \r\n\r\n", head + "Transfer-Encoding: gzip\r\n\r\n",
        head + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
        head + "Transfer-Encoding: gzip, chunked\r\n\r\n", chunked + "\r\n", chunked + "-1\r\n",
        chunked + "fffffffffffffffff\r\n", chunked + "2\r\nabcd\r\n", chunked + "0x2\r\n\r\n"}) {
    CAPTURE(text);
    CHECK_THROWS(ResponseParser().feed(text));
  }
}

TEST_CASE("a truncated response and a missing one have different errors", "[http]") {
  ResponseParser silent;
  CHECK_THROWS_WITH(silent.end(), "it closed the connection without an answer");
  ResponseParser cut;
  cut.feed("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe");
  CHECK_THROWS_WITH(cut.end(), "it closed the connection in the middle of its answer");
}

TEST_CASE("a peer cannot make the parser buffer more than the limits", "[http]") {
  const std::string much(1 << 20, 'x');
  SECTION("in a status line") {
    CHECK_THROWS(ResponseParser().feed("HTTP/1." + much));
  }
  SECTION("in header fields") {
    ResponseParser parser;
    parser.feed("HTTP/1.1 200 OK\r\n");
    CHECK_THROWS_WITH(([&] {
                        for (int i = 0; i < 10'000; ++i) parser.feed("X: y\r\n");
                      }()),
                      "the header of its HTTP response is too long");
  }
  SECTION("in a body") {
    ResponseParser parser;
    parser.feed("HTTP/1.1 200 OK\r\nContent-Length: 999999999999\r\n\r\n");
    for (int i = 0; i < 4; ++i) parser.feed(much);
    CHECK_THROWS_WITH(parser.feed(much), "its HTTP response is too long");
  }
  SECTION("in a chunk's extension") {
    ResponseParser parser;
    parser.feed("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    CHECK_THROWS(parser.feed("5;" + much));
  }
  SECTION("in trailers") {
    ResponseParser parser;
    parser.feed("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n");
    CHECK_THROWS(([&] {
      for (int i = 0; i < 10'000; ++i) parser.feed("X: y\r\n");
    }()));
  }
  SECTION("but a stream whose body is taken is unlimited") {
    ResponseParser parser;
    parser.feed("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    for (int i = 0; i < 64; ++i) {
      parser.feed("100000\r\n" + much + "\r\n");
      CHECK(parser.take_body() == much);
    }
  }
}

TEST_CASE("a larger body can be allowed", "[http]") {
  const std::string much(ResponseParser::kMaxBodyBytes + 1, 'x');
  const auto response =
      "HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(much.size()) + "\r\n\r\n" + much;
  CHECK_THROWS_WITH(ResponseParser().feed(response), "its HTTP response is too long");
  ResponseParser parser(much.size());
  parser.feed(response);
  CHECK(parser.take_body() == much);
}

TEST_CASE("a GET request has neither a body nor its length", "[http]") {
  CHECK(text_of({.authority = "a:1", .path = "/b?c", .post = false, .fields = {{"X", "y"}}}) ==
        "GET /b?c HTTP/1.1\r\nHost: a:1\r\nConnection: close\r\nX: y\r\n\r\n");
}
