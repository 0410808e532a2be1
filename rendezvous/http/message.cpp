#include "rendezvous/http/message.hpp"

#include <cstdint>
#include <limits>
#include <stdexcept>
#include <utility>

#include <boost/beast/core/buffer_traits.hpp>
#include <boost/beast/core/buffers_range.hpp>
#include <boost/beast/http/basic_parser.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/beast/http/serializer.hpp>
#include <boost/beast/http/string_body.hpp>

namespace mgpu::rendezvous::http {

namespace beast = boost::beast;
using beast::http::field;
using boost::system::error_code;

namespace {

[[noreturn]] void throw_bad_response(const char* why) {
  throw std::runtime_error(why);
}

constexpr const char* kNotHttp = "it does not speak HTTP";
constexpr const char* kLongHead = "the header of its HTTP response is too long";
constexpr const char* kBadEncoding = "it uses an unsupported HTTP transfer encoding";

// Describes an error of Beast's parser. `begun`: it was found after the head.
const char* parse_problem(const error_code& problem, bool begun) {
  using beast::http::error;
  if (problem == error::bad_content_length || problem == error::multiple_content_length)
    return "its HTTP response has an invalid length";
  if (problem == error::bad_transfer_encoding) return kBadEncoding;
  return begun ? "a chunk of its HTTP response is invalid" : kNotHttp;
}

}  // namespace

std::string text_of(const Request& request) {
  using beast::http::verb;
  beast::http::request<beast::http::string_body> message(request.post ? verb::post : verb::get,
                                                         request.path, 11);
  message.set(field::host, request.authority);
  message.set(field::connection, "close");
  for (const auto& [name, value] : request.fields) message.set(name, value);
  if (request.post) {
    message.set(field::content_type, "application/json");
    message.body() = request.body;
  }
  message.prepare_payload();
  std::string text;
  beast::http::request_serializer<beast::http::string_body> serializer(message);
  while (!serializer.is_done()) {
    error_code impossible;  // only a body that is read from somewhere can fail
    serializer.next(impossible, [&](error_code&, const auto& buffers) {
      for (const auto buffer : beast::buffers_range_ref(buffers))
        text.append(static_cast<const char*>(buffer.data()), buffer.size());
      serializer.consume(beast::buffer_bytes(buffers));
    });
  }
  return text;
}

// Beast's parser, which finds the ends of head, body and chunks. Limits are those of its owner.
class ResponseParser::Parser : public beast::http::basic_parser<false> {
 public:
  explicit Parser(std::size_t max_body) : max_body_(max_body) {
    header_limit(std::numeric_limits<std::uint32_t>::max());
    body_limit(boost::none);
  }

  int status = 0;
  std::string retry_after;
  std::string body;

 private:
  std::size_t append(beast::string_view bytes) {
    if (bytes.size() > max_body_ - body.size()) throw_bad_response("its HTTP response is too long");
    body.append(bytes.data(), bytes.size());
    return bytes.size();
  }

  void on_request_impl(beast::http::verb, beast::string_view, beast::string_view, int,
                       error_code&) override {}
  void on_response_impl(int code, beast::string_view, int, error_code&) override {
    if (code < 100) throw_bad_response(kNotHttp);
    status = code;
  }
  void on_field_impl(field name, beast::string_view, beast::string_view value,
                     error_code&) override {
    // Beast would read a body in another encoding to the end of the connection.
    if (name == field::transfer_encoding && !beast::iequals(value, "chunked"))
      throw_bad_response(kBadEncoding);
    if (name == field::retry_after) retry_after.assign(value.data(), value.size());
  }
  void on_header_impl(error_code&) override {}
  void on_body_init_impl(const boost::optional<std::uint64_t>&, error_code&) override {}
  std::size_t on_body_impl(beast::string_view bytes, error_code&) override { return append(bytes); }
  void on_chunk_header_impl(std::uint64_t, beast::string_view, error_code&) override {}
  std::size_t on_chunk_body_impl(std::uint64_t, beast::string_view bytes, error_code&) override {
    return append(bytes);
  }
  void on_finish_impl(error_code&) override {}

  std::size_t max_body_;
};

ResponseParser::ResponseParser(std::size_t max_body)
    : max_body_(max_body), parser_(std::make_unique<Parser>(max_body)) {}

ResponseParser::~ResponseParser() = default;

void ResponseParser::feed(std::string_view bytes) {
  const bool joined = !pending_.empty();
  if (joined) pending_.append(bytes);
  std::string_view rest = joined ? pending_ : bytes;
  while (!rest.empty() && !done() && parse(rest)) {
  }
  if (done()) rest = {};
  if (!begun() && head_bytes_ + rest.size() > kMaxHeadBytes)
    throw_bad_response(parser_->status == 0 ? kNotHttp : kLongHead);
  if (rest.size() > kMaxHeadBytes) throw_bad_response("a line of its HTTP response is too long");
  if (joined)
    pending_.erase(0, pending_.size() - rest.size());
  else
    pending_.assign(rest);
}

// Removes the bytes that were parsed from `rest`. False if more must follow first.
bool ResponseParser::parse(std::string_view& rest) {
  constexpr std::string_view kStart = "HTTP/1.";
  // Checked early: a server of another protocol may never end its first line.
  if (parser_->status == 0 && !kStart.starts_with(rest.substr(0, kStart.size())))
    throw_bad_response(kNotHttp);
  const bool was_begun = begun();
  error_code problem;
  const auto used = parser_->put({rest.data(), rest.size()}, problem);
  rest.remove_prefix(used);
  if (!was_begun) head_bytes_ += used;
  if (!was_begun && head_bytes_ > kMaxHeadBytes) throw_bad_response(kLongHead);
  if (problem == beast::http::error::need_more) return false;
  if (problem) throw_bad_response(parse_problem(problem, was_begun));
  if (parser_->is_done() && parser_->status < 200) {  // "100 Continue": the response follows
    parser_ = std::make_unique<Parser>(max_body_);
    head_bytes_ = 0;
  }
  return true;
}

bool ResponseParser::begun() const {
  return parser_->is_header_done();
}

bool ResponseParser::done() const {
  return parser_->is_done();
}

int ResponseParser::status() const {
  return parser_->status;
}

const std::string& ResponseParser::retry_after() const {
  return parser_->retry_after;
}

void ResponseParser::end() {
  if (done()) return;
  if (!parser_->got_some()) throw_bad_response("it closed the connection without an answer");
  error_code partial;
  parser_->put_eof(partial);
  if (partial) throw_bad_response("it closed the connection in the middle of its answer");
}

std::string ResponseParser::take_body() {
  return std::exchange(parser_->body, {});
}

}  // namespace mgpu::rendezvous::http
