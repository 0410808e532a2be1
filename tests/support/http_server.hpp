#pragma once

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace mgpu::tests {

struct HttpResponse {
  unsigned status = 200;
  std::string body{};
  bool silent = false;  // reads the request and never answers
  std::string retry_after{};
};

struct HttpRequest {
  std::string method, path, body;
};

// Answers one connection after the other on its own port until it is destroyed.
class HttpServer {
 public:
  using Respond = std::function<HttpResponse(const HttpRequest&)>;

  explicit HttpServer(Respond respond)
      : acceptor_(io_, {boost::asio::ip::address_v4::loopback(), 0}),
        respond_(std::move(respond)),
        thread_([this] { serve(); }) {}
  ~HttpServer() {
    stopping_ = true;
    boost::beast::error_code ignored;
    boost::asio::ip::tcp::socket last(io_);
    last.connect(acceptor_.local_endpoint(), ignored);
    last.close(ignored);
    thread_.join();
  }

  std::string url() const {
    return "http://127.0.0.1:" + std::to_string(acceptor_.local_endpoint().port());
  }
  std::vector<HttpRequest> requests() const {
    const std::scoped_lock lock(mutex_);
    return requests_;
  }

 private:
  void serve() {
    namespace http = boost::beast::http;
    while (true) {
      boost::asio::ip::tcp::socket socket(io_);
      acceptor_.accept(socket);
      if (stopping_) return;
      boost::beast::flat_buffer buffer;
      http::request<http::string_body> request;
      boost::beast::error_code failure;
      http::read(socket, buffer, request, failure);
      if (failure) continue;
      const HttpRequest received{std::string(request.method_string()),
                                 std::string(request.target()), request.body()};
      {
        const std::scoped_lock lock(mutex_);
        requests_.push_back(received);
      }
      const auto answer = respond_(received);
      if (answer.silent) {
        char byte = 0;
        socket.read_some(boost::asio::buffer(&byte, 1), failure);  // until the client gives up
        continue;
      }
      http::response<http::string_body> response(static_cast<http::status>(answer.status), 11);
      if (!answer.retry_after.empty()) response.set(http::field::retry_after, answer.retry_after);
      response.body() = answer.body;
      response.prepare_payload();
      http::write(socket, response, failure);
    }
  }

  boost::asio::io_context io_;
  boost::asio::ip::tcp::acceptor acceptor_;
  Respond respond_;
  mutable std::mutex mutex_;
  std::vector<HttpRequest> requests_;
  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

}  // namespace mgpu::tests
