#include "rendezvous/etcd/http.hpp"

#include <algorithm>
#include <charconv>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

namespace mgpu::rendezvous::etcd {
namespace {

[[noreturn]] void throw_bad_response(const char* why) {
  throw std::runtime_error(why);
}

constexpr const char* kNotHttp = "it does not speak HTTP";

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return result;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

// Parses the whole text as an unsigned number of this base.
bool read_number(std::string_view text, int base, std::uint64_t& number) {
  const auto* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number, base);
  return !text.empty() && error == std::errc() && stop == end;
}

}  // namespace

std::string http_post(std::string_view authority, std::string_view path, std::string_view token,
                      std::string_view body) {
  const auto sign_in = token.empty() ? "" : fmt::format("Authorization: {}\r\n", token);
  // hasleader: a member that has lost the majority then ends a watch instead of keeping it open.
  return fmt::format(
      "POST {} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nConnection: close\r\n"
      "Grpc-Metadata-hasleader: true\r\n{}Content-Length: {}\r\n\r\n{}",
      path, authority, sign_in, body.size(), body);
}

void ResponseParser::feed(std::string_view bytes) {
  while (!bytes.empty() && state_ != State::done) {
    if (state_ == State::body || state_ == State::body_to_end || state_ == State::chunk) {
      append_body(bytes);
      continue;
    }
    const auto newline = bytes.find('\n');
    const auto piece = bytes.substr(0, newline);
    head_bytes_ += piece.size() + (newline == std::string_view::npos ? 0 : 1);
    if (state_ != State::chunk_size && state_ != State::chunk_end && head_bytes_ > kMaxHeadBytes)
      throw_bad_response(status_ == 0 ? kNotHttp : "the header of its HTTP response is too long");
    line_.append(piece);
    if (line_.size() > kMaxHeadBytes) throw_bad_response("a line of its HTTP response is too long");
    // Checked early: a server of another protocol may never end its first line.
    if (state_ == State::status_line && !line_.starts_with(std::string_view("HTTP/1.").substr(
                                            0, std::min<std::size_t>(line_.size(), 7))))
      throw_bad_response(kNotHttp);
    if (newline == std::string_view::npos) return;
    bytes.remove_prefix(newline + 1);
    if (line_.ends_with('\r')) line_.pop_back();
    const auto line = std::exchange(line_, {});
    read_line(line);
  }
}

void ResponseParser::read_line(std::string_view line) {
  switch (state_) {
    case State::status_line:
      return read_status_line(line);
    case State::fields:
      return line.empty() ? begin_body() : read_field(line);
    case State::chunk_size:
      return begin_chunk(line);
    case State::chunk_end:
      if (!line.empty())
        throw_bad_response("a chunk of its HTTP response is longer than announced");
      state_ = State::chunk_size;
      return;
    case State::trailers:
      if (line.empty()) state_ = State::done;
      return;
    case State::body:
    case State::body_to_end:
    case State::chunk:
    case State::done:
      return;
  }
}

void ResponseParser::read_status_line(std::string_view line) {
  // "HTTP/1.1 200 OK"
  std::uint64_t status = 0;
  if (line.size() < 12 || !line.starts_with("HTTP/1.") || line[8] != ' ' ||
      !read_number(line.substr(9, 3), 10, status) || status < 100 ||
      (line.size() > 12 && line[12] != ' '))
    throw_bad_response(kNotHttp);
  status_ = static_cast<int>(status);
  state_ = State::fields;
}

void ResponseParser::read_field(std::string_view line) {
  const auto colon = line.find(':');
  if (colon == std::string_view::npos || colon == 0) throw_bad_response(kNotHttp);
  const auto name = lower(line.substr(0, colon));
  const auto value = trimmed(line.substr(colon + 1));
  if (name == "transfer-encoding") {
    if (lower(value) != "chunked")
      throw_bad_response("it uses an unsupported HTTP transfer encoding");
    chunked_ = true;
  } else if (name == "content-length") {
    std::uint64_t length = 0;
    if (!read_number(value, 10, length) || (has_length_ && length != remaining_))
      throw_bad_response("its HTTP response has an invalid length");
    remaining_ = length;
    has_length_ = true;
  }
}

void ResponseParser::begin_body() {
  if (status_ < 200) {  // "100 Continue": the response follows
    *this = ResponseParser();
    return;
  }
  if (chunked_)
    state_ = State::chunk_size;
  else if (status_ == 204 || status_ == 304 || (has_length_ && remaining_ == 0))
    state_ = State::done;
  else
    state_ = has_length_ ? State::body : State::body_to_end;
}

void ResponseParser::begin_chunk(std::string_view line) {
  if (!read_number(trimmed(line.substr(0, line.find(';'))), 16, remaining_))
    throw_bad_response("a chunk of its HTTP response has an invalid length");
  state_ = remaining_ == 0 ? State::trailers : State::chunk;
  if (state_ == State::trailers) head_bytes_ = 0;
}

void ResponseParser::append_body(std::string_view& bytes) {
  const bool bounded = state_ != State::body_to_end;
  const auto size =
      bounded ? static_cast<std::size_t>(std::min<std::uint64_t>(remaining_, bytes.size()))
              : bytes.size();
  if (body_.size() + size > kMaxBodyBytes) throw_bad_response("its HTTP response is too long");
  body_.append(bytes.substr(0, size));
  bytes.remove_prefix(size);
  if (!bounded) return;
  remaining_ -= size;
  if (remaining_ == 0) state_ = state_ == State::chunk ? State::chunk_end : State::done;
}

void ResponseParser::end() {
  if (state_ == State::done) return;
  if (state_ == State::body_to_end) {
    state_ = State::done;
    return;
  }
  throw_bad_response(state_ == State::status_line && line_.empty()
                         ? "it closed the connection without an answer"
                         : "it closed the connection in the middle of its answer");
}

std::string ResponseParser::take_body() {
  return std::exchange(body_, {});
}

}  // namespace mgpu::rendezvous::etcd
