#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace mgpu::rendezvous::etcd {

// A POST request with a JSON body, for a connection that is used once. `token` is the token of the
// signed-in user, or empty.
std::string http_post(std::string_view authority, std::string_view path, std::string_view token,
                      std::string_view body);

// Parses one HTTP/1.x response from pieces of any size: with a Content-Length, with chunks and
// trailers, or with a body up to the end of the connection. Memory is bounded: head, trailers and
// the line before a chunk by kMaxHeadBytes, body bytes that were not taken yet by kMaxBodyBytes.
class ResponseParser {
 public:
  static constexpr std::size_t kMaxHeadBytes = 16 << 10;
  static constexpr std::size_t kMaxBodyBytes = 4 << 20;

  ResponseParser();
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
  std::string take_body();  // the body bytes received since the last call

 private:
  class Parser;

  bool parse(std::string_view& rest);

  std::unique_ptr<Parser> parser_;
  std::string pending_;  // bytes that cannot be parsed before more follow
  std::size_t head_bytes_ = 0;
};

}  // namespace mgpu::rendezvous::etcd
