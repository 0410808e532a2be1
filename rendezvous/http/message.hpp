#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace mgpu::rendezvous::http {

// A request for a connection that is used once.
struct Request {
  std::string authority;  // of the server
  std::string path;
  bool post = true;                                              // false: GET
  std::string body = {};                                         // JSON; without one if GET
  std::vector<std::pair<std::string, std::string>> fields = {};  // further header fields
};
std::string text_of(const Request& request);

// Parses one HTTP/1.x response from pieces of any size: with a Content-Length, with chunks and
// trailers, or with a body up to the end of the connection. Memory is bounded: head, trailers and
// the line before a chunk by kMaxHeadBytes, body bytes that were not taken yet by `max_body`.
class ResponseParser {
 public:
  static constexpr std::size_t kMaxHeadBytes = 16 << 10;
  static constexpr std::size_t kMaxBodyBytes = 4 << 20;

  explicit ResponseParser(std::size_t max_body = kMaxBodyBytes);
  ~ResponseParser();
  ResponseParser(const ResponseParser&) = delete;
  ResponseParser& operator=(const ResponseParser&) = delete;

  // These throw std::runtime_error with a phrase about the peer, such as "it does not speak HTTP";
  // after that only the destructor may be called. Bytes after the response are ignored.
  void feed(std::string_view bytes);
  void end();  // the peer closed the connection

  bool begun() const;  // the head is complete, status() is valid
  bool done() const;
  int status() const;
  const std::string& retry_after() const;  // the value of the header Retry-After
  std::string take_body();                 // the body bytes received since the last call

 private:
  class Parser;

  bool parse(std::string_view& rest);

  std::size_t max_body_;
  std::unique_ptr<Parser> parser_;
  std::string pending_;  // bytes that cannot be parsed before more follow
  std::size_t head_bytes_ = 0;
};

}  // namespace mgpu::rendezvous::http
