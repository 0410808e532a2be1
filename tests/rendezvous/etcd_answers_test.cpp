#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "rendezvous/etcd/answers.hpp"
#include "rendezvous/etcd/requests.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu::rendezvous::etcd;

TEST_CASE("a range response of etcd 3.4 is parsed", "[etcd]") {
  const auto answer = RangeAnswer::parse(
      R"({"header":{"cluster_id":"14841639068965178418","revision":"7"},"kvs":[{"key":"YQ==",)"
      R"("create_revision":"2","mod_revision":"7","version":"1","value":"Yg==","lease":"77"}],)"
      R"("more":true,"count":"2"})");
  REQUIRE(answer);
  CHECK(answer->header.cluster == 14841639068965178418u);
  CHECK(answer->header.revision == 7);
  CHECK(answer->more);
  CHECK(answer->keys == std::vector<KeyValue>{{.key = "a",
                                               .value = "b",
                                               .create_revision = 2,
                                               .mod_revision = 7,
                                               .version = 1,
                                               .lease = 77}});
}

TEST_CASE("a range response without keys and with plain numbers is parsed", "[etcd]") {
  const auto answer = RangeAnswer::parse(R"({"header":{"revision":7},"kvs":null})");
  REQUIRE(answer);
  CHECK(answer->header.revision == 7);
  CHECK(answer->keys.empty());
}

TEST_CASE("a transaction response contains what each operation found", "[etcd]") {
  const auto answer = TransactionAnswer::parse(
      R"({"header":{"revision":"3"},"succeeded":true,"responses":[{"response_put":{"header":{}}},)"
      R"({"response_range":{"header":{},"kvs":[{"key":"YQ=="}]}},{"response_range":{}}]})");
  REQUIRE(answer);
  CHECK(answer->succeeded);
  REQUIRE(answer->found.size() == 3);
  CHECK(answer->found[0].empty());
  CHECK(answer->found[1].at(0).key == "a");
  CHECK(answer->found[2].empty());
  CHECK_FALSE(TransactionAnswer::parse(R"({"header":{}})")->succeeded);
}

TEST_CASE("a lease response is parsed both plain and as a stream element", "[etcd]") {
  CHECK(LeaseAnswer::parse(R"({"header":{},"ID":"77","TTL":"2"})")->ttl == 2);
  CHECK(LeaseAnswer::parse(R"({"result":{"header":{},"ID":"77","TTL":"2"}})")->lease == 77);
  CHECK(LeaseAnswer::parse(R"({"result":{"header":{},"ID":"77"}})")->ttl == 0);
  CHECK_FALSE(LeaseAnswer::parse(R"({"header":{},"TTL":"-1"})"));
  CHECK_FALSE(LeaseAnswer::parse(R"({"header":{},"TTL":"9223372036854775807"})"));
}

TEST_CASE("a token that is invalid in a header line is rejected", "[etcd]") {
  CHECK(SignInAnswer::parse(R"({"header":{},"token":"abc.9"})")->token == "abc.9");
  CHECK_FALSE(SignInAnswer::parse(R"({"header":{}})"));
  CHECK_FALSE(SignInAnswer::parse("{\"header\":{},\"token\":\"a\\r\\nX: y\"}"));
}

TEST_CASE("a line of a watch is parsed", "[etcd]") {
  const auto events = WatchAnswer::parse(
      R"({"result":{"header":{"revision":"3"},"events":[{"kv":{"key":"YQ==","mod_revision":"2"}},)"
      R"({"type":"DELETE","kv":{"key":"YQ==","mod_revision":"3"}}]}})");
  REQUIRE(events);
  REQUIRE(events->events.size() == 2);
  CHECK_FALSE(events->events[0].removed);
  CHECK(events->events[1].removed);
  CHECK(events->events[1].key.mod_revision == 3);
  const auto compacted =
      WatchAnswer::parse(R"({"result":{"header":{},"canceled":true,"compact_revision":"9"}})");
  CHECK(compacted->canceled);
  CHECK(compacted->compact_revision == 9);
  const auto ended = WatchAnswer::parse(
      R"({"error":{"grpc_code":14,"http_code":503,"message":"etcdserver: no leader"}})");
  CHECK(ended->canceled);
  CHECK(ended->reason == "etcdserver: no leader");
}

TEST_CASE("a malformed response is rejected", "[etcd]") {
  for (const std::string_view body : {"",
                                      "{",
                                      "[]",
                                      "null",
                                      "7",
                                      "\"header\"",
                                      "{}",
                                      R"({"header":7})",
                                      R"({"header":{},"kvs":7})",
                                      R"({"header":{},"kvs":[7]})",
                                      R"({"header":{},"kvs":[{"version":"-1"}]})",
                                      R"({"header":{},"kvs":[{"version":"9223372036854775807"}]})",
                                      R"({"header":{},"kvs":[{"key":"%"}]})",
                                      R"({"header":{},"kvs":[{"key":7}]})",
                                      R"({"header":{"revision":"x"}})",
                                      R"({"header":{"revision":""}})",
                                      R"({"header":{"revision":"9223372036854775808"}})",
                                      R"({"header":{"revision":1.5}})",
                                      R"({"header":{"revision":18446744073709551615}})",
                                      R"({"header":{"cluster_id":-1}})",
                                      R"({"header":{},"more":"yes"})"}) {
    CAPTURE(body);
    CHECK_FALSE(RangeAnswer::parse(body));
    CHECK_FALSE(WatchAnswer::parse(body));
  }
  CHECK_FALSE(RangeAnswer::parse(std::string(100'000, '[')));
  CHECK_FALSE(WatchAnswer::parse(R"({"result":{"header":{},"events":[{"type":"PUT"}]}})"));
  CHECK_FALSE(WatchAnswer::parse(R"({"result":{"header":{},"events":[{"type":"X","kv":{}}]}})"));
}

TEST_CASE("a response is classified by what the caller must do", "[etcd]") {
  struct Case {
    int status;
    const char* body;
    ResponseKind kind;
  };
  const auto [status, body, kind] = GENERATE(values<Case>({
      {200, "{}", ResponseKind::ok},
      {401, R"({"error":"etcdserver: invalid auth token","code":16})", ResponseKind::sign_in},
      {400, R"({"message":"etcdserver: user name is empty","code":3})", ResponseKind::sign_in},
      {400, R"({"message":"etcdserver: authentication failed","code":3})", ResponseKind::rejected},
      {412, R"({"message":"etcdserver: authentication is not enabled","code":9})",
       ResponseKind::auth_disabled},
      {412, R"({"message":"etcdserver: lease already exists","code":9})", ResponseKind::rejected},
      {404, R"({"message":"etcdserver: requested lease not found","code":5})",
       ResponseKind::rejected},
      {403, R"({"message":"etcdserver: permission denied","code":7})", ResponseKind::rejected},
      {503, R"({"error":{"grpc_code":14,"message":"etcdserver: no leader"}})",
       ResponseKind::next_member},
      {504, R"({"code":4,"message":"context deadline exceeded"})", ResponseKind::next_member},
      {404, "Not Found", ResponseKind::not_etcd},
      {500, "{}", ResponseKind::not_etcd},
      {501, "", ResponseKind::not_etcd},
  }));
  CAPTURE(body);
  ErrorAnswer error;
  CHECK(classify(status, body, error) == kind);
}

TEST_CASE("an untrusted error message is shown on one short line", "[etcd]") {
  const auto error =
      ErrorAnswer::parse("{\"code\":2,\"message\":\"a\\nb" + std::string(5000, 'x') + "\"}");
  REQUIRE(error);
  CHECK(error->message.size() < 300);
  CHECK(error->message.find('\n') == std::string::npos);
}

TEST_CASE("requests encode bytes in base64 and numbers as strings", "[etcd]") {
  using nlohmann::json;
  CHECK(json::parse(put_request("a", std::string("\0\xff", 2), 7)) ==
        json{{"key", "YQ=="}, {"value", "AP8="}, {"lease", "7"}});
  CHECK(json::parse(range_request("a", "b", 3)) ==
        json{{"key", "YQ=="}, {"range_end", "Yg=="}, {"limit", "3"}});
  CHECK(json::parse(watch_request("a", "", 9)) ==
        json{{"create_request", {{"key", "YQ=="}, {"start_revision", "9"}}}});
  CHECK_NOTHROW(sign_in_request("\xff", "\xc3\x28"));
  const auto transaction = json::parse(transaction_request(
      {.if_all = {{.key = "a", .what = Compare::What::mod_revision, .is = 5}},
       .then = {{.what = Operation::What::put, .key = "a", .value = "b", .lease = 1}},
       .otherwise = {{.key = "a"}}}));
  CHECK(transaction.at("compare").at(0) ==
        json{{"key", "YQ=="}, {"result", "EQUAL"}, {"target", "MOD"}, {"mod_revision", "5"}});
  CHECK(transaction.at("success").at(0).at("request_put").at("lease") == "1");
  CHECK(transaction.at("failure").at(0).contains("request_range"));
}

TEST_CASE("the end of a prefix is the next prefix", "[etcd]") {
  CHECK(prefix_end("a/") == "a0");
  CHECK(prefix_end("a\xff\xff") == "b");
  CHECK(prefix_end("\xff") == std::string(1, '\0'));
}

TEST_CASE("a request is one POST with a Content-Length", "[etcd]") {
  const auto request = http_post("[::1]:2379", "/v3/kv/put", "token.1", "{}");
  CHECK(request.starts_with("POST /v3/kv/put HTTP/1.1\r\nHost: [::1]:2379\r\n"));
  CHECK_THAT(request, Catch::Matchers::Contains("\r\nAuthorization: token.1\r\n"));
  CHECK(request.ends_with("Content-Length: 2\r\n\r\n{}"));
  CHECK(http_post("a", "/", "", "").find("Authorization") == std::string::npos);
}
