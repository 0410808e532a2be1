#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <thread>

#include "tests/runtime/rewards/rewards_support.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu;
using namespace mgpu::tests;
using Catch::Matchers::Contains;
namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;

namespace {

struct Answer {
  unsigned status = 200;
  std::string body{};
  bool silent = false;  // takes the question and says nothing
};

using Answers = std::vector<Answer>;

// Gives one answer a connection, in their order.
class Server {
 public:
  explicit Server(Answers answers)
      : acceptor_(io_, {asio::ip::address_v4::loopback(), 0}),
        thread_([this, answers = std::move(answers)] { serve(answers); }) {}
  ~Server() {
    beast::error_code ignored;
    if (asked_ < answers_) {  // a failed test must not hang
      asio::ip::tcp::socket last(io_);
      last.connect(acceptor_.local_endpoint(), ignored);
    }
    thread_.join();
  }
  std::string url() const {
    return "http://127.0.0.1:" + std::to_string(acceptor_.local_endpoint().port()) + "/score";
  }
  int asked() const { return asked_; }
  json question() const { return json::parse(last_); }

 private:
  void serve(const std::vector<Answer>& answers) {
    answers_ = static_cast<int>(answers.size());
    for (const auto& answer : answers) {
      asio::ip::tcp::socket socket(io_);
      acceptor_.accept(socket);
      beast::flat_buffer buffer;
      http::request<http::string_body> request;
      beast::error_code failure;
      http::read(socket, buffer, request, failure);
      if (failure) return;
      last_ = request.body();
      ++asked_;
      if (answer.silent) {
        char byte = 0;
        beast::error_code closed;
        socket.read_some(asio::buffer(&byte, 1), closed);  // until the other side gives up
        continue;
      }
      http::response<http::string_body> response(static_cast<http::status>(answer.status), 11);
      response.body() = answer.body;
      response.prepare_payload();
      http::write(socket, response, failure);
    }
  }

  asio::io_context io_;
  asio::ip::tcp::acceptor acceptor_;
  std::atomic<int> asked_ = 0;
  std::atomic<int> answers_ = 0;
  std::string last_;
  std::thread thread_;
};

}  // namespace

TEST_CASE("an address is asked for the scores of a group", "[rewards][http]") {
  Server server(Answers{{.body = R"({"scores":[1,null]})"}});
  const Batch batch({"a", "b"}, {{"prompt", "q"}, {"solution", "s"}});
  CHECK(batch.scored_by(server.url()) == std::vector<Score>{1, std::nullopt});
  CHECK(server.question()["completions"] == json({"a", "b"}));
  CHECK(server.question()["columns"]["solution"] == json({"s", "s"}));
}

TEST_CASE("a server that is not ready is asked once more, a mistaken one is not",
          "[rewards][http]") {
  const Batch batch({"a"});
  {
    Server server(Answers{{.status = 503, .body = "warming up"}, {.body = R"({"scores":[3]})"}});
    CHECK(batch.scored_by(server.url()) == std::vector<Score>{3});
    CHECK(server.asked() == 2);
  }
  Server server(Answers{{.status = 404, .body = "no such path"}});
  CHECK_THAT(message_of([&] { batch.scored_by(server.url()); }),
             Contains("it answered with status 404: no such path"));
  CHECK(server.asked() == 1);
}

TEST_CASE("a server that never answers fails at the time limit", "[rewards][http]") {
  Server server(Answers{{.silent = true}});
  CHECK_THAT(message_of([&] { Batch({"a"}).scored_by(server.url(), {{"reward_timeout", 0.2}}); }),
             Contains("it did not answer in time"));
}

TEST_CASE("nobody at an address, and addresses that are none, are errors", "[rewards][http]") {
  const Batch batch({"a"});
  CHECK_THAT(message_of([&] { batch.scored_by("http://127.0.0.1:1/"); }),
             Contains("cannot connect"));
  CHECK_THAT(message_of([&] { batch.scored_by("http://:80/"); }),
             Contains("http://HOST:PORT/PATH"));
  CHECK_THAT(message_of([&] { batch.scored_by("http://a:b/"); }),
             Contains("http://HOST:PORT/PATH"));
  CHECK_THAT(message_of([&] { batch.scored_by("https://a/"); }), Contains("https is not spoken"));
}
