#include "tests/runtime/servers/servers_support.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu;
using namespace mgpu::tests;
using namespace std::chrono_literals;
using Catch::Matchers::Contains;

TEST_CASE("server addresses are parsed", "[http]") {
  using http::address_of;
  CHECK(address_of("http://host") == http::Address{"host", "80", ""});
  CHECK(address_of("http://host:8000/a/b") == http::Address{"host", "8000", "/a/b"});
  CHECK(address_of("http://[::1]:8000/") == http::Address{"::1", "8000", "/"});
  CHECK(address_of("http://[::1]") == http::Address{"::1", "80", ""});
  CHECK(address_of("http://[::1]:8000/a").url() == "http://[::1]:8000/a");
  CHECK(address_of("https://host") == http::Address{"host", "443", "", true});
  CHECK(address_of("https://host:8443/a") == http::Address{"host", "8443", "/a", true});
  CHECK(address_of("https://[::1]/a").url() == "https://[::1]:443/a");
  for (const char* wrong : {"", "host:80", "ftp://host", "httpss://host", "https:/host",
                            "https:", "http://", "http://:80", "http://h:", "http://h:x",
                            "http://h:123456", "http://h:70000", "http://a b"}) {
    CAPTURE(wrong);
    CHECK_THAT(message_of([&] { address_of(wrong); }), Contains("http://HOST:PORT/PATH"));
  }
}

TEST_CASE("transient server errors are retried, other errors are not", "[servers]") {
  int requests = 0;
  unsigned fault = 503;
  const HttpServer server([&](const HttpRequest&) {
    return ++requests < 3 ? HttpResponse{fault, "wait"} : HttpResponse{200, "{}"};
  });
  const auto client = client_of(server);
  SECTION("until it is over") {
    CHECK(client.post("/x", {{"a", 1}}, 5s).status == 200);
    CHECK(requests == 3);
    CHECK(server.requests()[2].body == R"({"a":1})");
  }
  SECTION("up to the maximum number of tries") {
    requests = -10;
    CHECK(client.post("/x", {}, 5s).status == 503);
    CHECK(requests == -7);
  }
  SECTION("but not for errors that are not transient") {
    fault = 404;
    CHECK(client.get("/x", 5s).status == 404);
    CHECK(requests == 1);
  }
}

TEST_CASE("an unreachable or slow server is reported with its address", "[servers]") {
  const servers::ServerClient unreachable(http::address_of("http://127.0.0.1:1/api"),
                                          {.tries = 2, .pause = {}});
  CHECK_THAT(
      message_of([&] { unreachable.get("/health", 1s); }),
      Contains("http://127.0.0.1:1/api/health: cannot connect") && Contains("tried 2 times"));
  const HttpServer silent([](const HttpRequest&) { return HttpResponse{.silent = true}; });
  CHECK_THAT(message_of([&] { client_of(silent).post("/x", {}, 50ms); }),
             Contains("/x did not answer within"));
}

TEST_CASE("the path of the server's address is prepended to request paths", "[servers]") {
  const HttpServer server(by_path({{"/behind/a/proxy/health", {200, "{}"}}}));
  CHECK(client_of(server, "/behind/a/proxy/").get("/health", 5s).status == 200);
}

TEST_CASE("the server's error message is extracted from the answer", "[servers]") {
  using servers::error_message;
  CHECK(error_message(R"({"error":{"message":"no such model","code":404}})") == "no such model");
  CHECK(error_message(R"({"object":"error","message":"too long"})") == "too long");
  CHECK(error_message(R"({"detail":"Not Found"})") == "Not Found");
  CHECK(error_message(R"({"error":"wrong"})") == "wrong");
  CHECK(error_message("<html>\nbad gateway") == "<html>?bad gateway");
  CHECK(error_message("[1]") == "[1]");
  const HttpServer server(by_path({{"/text", {200, "hello"}}}));
  const auto client = client_of(server);
  CHECK_THAT(message_of([&] { client.json_of("/none", client.get("/none", 5s)); }),
             Contains(server.url() + "/none answered with status 404: Not Found"));
  CHECK_THAT(message_of([&] { client.json_of("/text", client.get("/text", 5s)); }),
             Contains("/text answered with something that is not JSON: hello"));
}
