#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace mgpu::rendezvous::etcd {

// A POST request with a JSON body, for a connection that is used once. `token` is the token of the
// signed-in user, or empty.
std::string http_post(std::string_view authority, std::string_view path, std::string_view token,
                      std::string_view body);

// Parses one HTTP/1.x response from pieces of any size: with a Content-Length, with chunks and
// trailers, or with a body up to the end of the connection. Memory is bounded: head and trailers by
// kMaxHeadBytes, body bytes that were not taken yet by kMaxBodyBytes.
class ResponseParser {
 public:
  static constexpr std::size_t kMaxHeadBytes = 16 << 10;
  static constexpr std::size_t kMaxBodyBytes = 4 << 20;

  // These throw std::runtime_error with a phrase about the peer, such as "it does not speak HTTP";
  // after that only the destructor may be called. Bytes after the response are ignored.
  void feed(std::string_view bytes);
  void end();  // the peer closed the connection

  bool begun() const { return state_ >= State::body; }  // the head is complete, status() is valid
  bool done() const { return state_ == State::done; }
  int status() const { return status_; }
  std::string take_body();  // the body bytes received since the last call

 private:
  enum class State {
    status_line,
    fields,
    body,
    body_to_end,
    chunk_size,
    chunk,
    chunk_end,
    trailers,
    done
  };

  void read_line(std::string_view line);
  void read_status_line(std::string_view line);
  void read_field(std::string_view line);
  void begin_body();
  void begin_chunk(std::string_view line);
  void append_body(std::string_view& bytes);

  State state_ = State::status_line;
  std::string line_;  // an incomplete line
  std::string body_;
  std::size_t head_bytes_ = 0;
  std::uint64_t remaining_ = 0;  // of the body or chunk
  int status_ = 0;
  bool has_length_ = false;
  bool chunked_ = false;
};

}  // namespace mgpu::rendezvous::etcd
