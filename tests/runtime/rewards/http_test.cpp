#include <chrono>

#include "tests/runtime/rewards/rewards_support.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/http_server.hpp"

using namespace mgpu;
using namespace mgpu::tests;
using Catch::Matchers::Contains;

namespace {

using Answers = std::vector<HttpResponse>;

// Gives one answer per request, in order.
class Server {
 public:
  explicit Server(Answers answers)
      : http_([this, answers = std::move(answers)](const HttpRequest&) {
          return answers.at(next_++);
        }) {}
  std::string url() const { return http_.url() + "/score"; }
  std::size_t request_count() const { return http_.requests().size(); }
  json last_request() const { return json::parse(http_.requests().back().body); }

 private:
  std::size_t next_ = 0;
  HttpServer http_;
};

}  // namespace

TEST_CASE("a server is requested to score a group", "[rewards][http]") {
  Server server(Answers{{.body = R"({"scores":[1,null]})"}});
  const Batch batch({"a", "b"}, {{"prompt", "q"}, {"solution", "s"}});
  CHECK(batch.scored_by(server.url()) == std::vector<Score>{1, std::nullopt});
  CHECK(server.last_request()["completions"] == json({"a", "b"}));
  CHECK(server.last_request()["columns"]["solution"] == json({"s", "s"}));
}

TEST_CASE("a request is retried once if the server is not ready, but not after an error",
          "[rewards][http]") {
  const Batch batch({"a"});
  {
    Server server(Answers{{.status = 503, .body = "warming up"}, {.body = R"({"scores":[3]})"}});
    CHECK(batch.scored_by(server.url()) == std::vector<Score>{3});
    CHECK(server.request_count() == 2);
  }
  Server server(Answers{{.status = 404, .body = "no such path"}});
  CHECK_THAT(message_of([&] { batch.scored_by(server.url()); }),
             Contains("it answered with status 404: no such path"));
  CHECK(server.request_count() == 1);
}

TEST_CASE("a server that answers 429 is asked again after the time that it requests",
          "[rewards][http]") {
  const Batch batch({"a"});
  const auto begin = std::chrono::steady_clock::now();
  SECTION("as often as it does") {
    const HttpResponse busy{.status = 429, .body = "slow down", .retry_after = "0"};
    Server server(Answers{busy, busy, busy, busy, {.body = R"({"scores":[3]})"}});
    CHECK(batch.scored_by(server.url()) == std::vector<Score>{3});
    CHECK(server.request_count() == 5);
  }
  SECTION("not earlier") {
    Server server(Answers{{.status = 429, .retry_after = "1"}, {.body = R"({"scores":[3]})"}});
    CHECK(batch.scored_by(server.url(), {{"reward_timeout", 0.9}}) == std::vector<Score>{3});
    CHECK(std::chrono::steady_clock::now() - begin >= std::chrono::seconds(1));
  }
  SECTION("also if it is a 503") {
    const HttpResponse busy{.status = 503, .retry_after = "0"};
    Server server(Answers{busy, busy, busy, {.body = R"({"scores":[3]})"}});
    CHECK(batch.scored_by(server.url()) == std::vector<Score>{3});
  }
  SECTION("but not if that is too late") {
    Server server(Answers{{.status = 429, .body = "come back tomorrow", .retry_after = "86400"}});
    const auto message = message_of([&] { batch.scored_by(server.url()); });
    CHECK_THAT(message, Contains("it answered with status 429: come back tomorrow"));
    CHECK_THAT(message, Contains("lower reward_concurrency"));
    CHECK(server.request_count() == 1);
  }
}

TEST_CASE("an answer that is much longer than its request is not read", "[rewards][http]") {
  const std::string filler(2 << 20, ' ');
  Server server(
      Answers{{.body = R"({"scores":[1]})" + filler}, {.body = R"({"scores":[1]})" + filler}});
  const Batch batch({"a"});
  CHECK_THAT(message_of([&] { batch.scored_by(server.url()); }),
             Contains("its HTTP response is too long"));
}

TEST_CASE("a server that never answers fails at the time limit", "[rewards][http]") {
  Server server(Answers{{.silent = true}});
  CHECK_THAT(message_of([&] { Batch({"a"}).scored_by(server.url(), {{"reward_timeout", 0.2}}); }),
             Contains("it did not answer in time"));
}

TEST_CASE("an unreachable server and invalid addresses are errors", "[rewards][http]") {
  const Batch batch({"a"});
  CHECK_THAT(message_of([&] { batch.scored_by("http://127.0.0.1:1/"); }),
             Contains("cannot connect"));
  CHECK_THAT(message_of([&] { batch.scored_by("http://:80/"); }),
             Contains("http://HOST:PORT/PATH"));
  CHECK_THAT(message_of([&] { batch.scored_by("http://a:b/"); }),
             Contains("http://HOST:PORT/PATH"));
  CHECK_THAT(message_of([&] { batch.scored_by("https://127.0.0.1:1/"); }),
             Contains("cannot connect"));
  CHECK_THAT(message_of([&] { batch.scored_by("https://a:b/"); }),
             Contains("https://HOST:PORT/PATH"));
}
