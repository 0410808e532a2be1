#include <string>

#include "rendezvous/auth.hpp"
#include "rendezvous/etcd/job_view.hpp"
#include "rendezvous/etcd/members.hpp"
#include "rendezvous/etcd/signer.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu::rendezvous::etcd;
using Catch::Matchers::Contains;
using Verdict = Signer::Verdict;

namespace {

constexpr const char* kSecret = "a secret of this test, 32 bytes or more";

KeyValue state() {
  return {.key = "/mgpu-run/alice/j/state",
          .value = R"({"job":7})",
          .create_revision = 5,
          .mod_revision = 9,
          .version = 3,
          .lease = 77};
}

// The key as it is read after `write` was written with its code.
KeyValue signed_with(const Signer& signer, KeyValue write) {
  write.value = signer.sign(write);
  return write;
}

}  // namespace

TEST_CASE("a signed value is readable, and accepted as it was written", "[etcd]") {
  const Signer signer(kSecret, false);
  const auto read = signed_with(signer, state());
  CHECK(read.value ==
        "{\"job\":7} hmac-sha256:"
        "13de058bd42b42a3b3cfc0197319cf424b4ed6831bfbe4bbdcd558f1df57d26a");
  const auto checked = signer.check(read);
  CHECK(checked.verdict == Verdict::accepted);
  CHECK(checked.value == R"({"job":7})");
}

TEST_CASE("a changed value, or one of another key or secret, is not accepted", "[etcd]") {
  const Signer signer(kSecret, false);
  auto read = signed_with(signer, state());
  SECTION("another value") {
    read.value.replace(1, 5, R"("end")");
  }
  SECTION("another code") {
    read.value.back() = read.value.back() == '0' ? '1' : '0';
  }
  SECTION("the state of another job with the same secret") {
    read.key = "/mgpu-run/alice/k/state";
  }
  SECTION("the job of another user with the same id and secret") {
    read.key = "/mgpu-run/bob/j/state";
  }
  SECTION("another secret") {
    read = signed_with(Signer("another secret of this test", true), state());
  }
  const auto checked = signer.check(read);
  CHECK(checked.verdict == Verdict::wrong_code);
  CHECK(checked.value.empty());
  CHECK(Signer(kSecret, true).check(read).verdict == Verdict::wrong_code);
}

TEST_CASE("an old value that is put back is not accepted", "[etcd]") {
  const Signer signer(kSecret, false);
  auto read = signed_with(signer, state());
  read.mod_revision = 30;
  SECTION("over a newer one") {
    read.version = 5;
  }
  SECTION("after the key was deleted") {
    read.create_revision = 30;
  }
  SECTION("after the key was deleted, as its first value") {
    read.create_revision = 30;
    read.version = 1;
  }
  CHECK(signer.check(read).verdict == Verdict::wrong_code);
}

TEST_CASE("the first value of a key is signed before its create revision is known", "[etcd]") {
  const Signer signer(kSecret, false);
  auto leader = signed_with(
      signer, {.key = "/mgpu-run/alice/j/leader", .value = "10.0.0.1:29400", .version = 1});
  CHECK(leader.value ==
        "10.0.0.1:29400 hmac-sha256:"
        "bfcd91c365d8ef3a7eabf851dc83abab083af17d4ebf4f03093d7860f0a0b90c");
  leader.create_revision = leader.mod_revision = 12;
  CHECK(signer.check(leader).value == "10.0.0.1:29400");
  SECTION("and is not accepted over another value") {
    leader.version = 2;
    CHECK(signer.check(leader).verdict == Verdict::wrong_code);
  }
}

TEST_CASE("a value whose code was removed is accepted on request only", "[etcd]") {
  CHECK(Signer(kSecret, false).check(state()).verdict == Verdict::no_code);
  const auto checked = Signer(kSecret, true).check(state());
  CHECK(checked.verdict == Verdict::accepted);
  CHECK(checked.value == state().value);
}

TEST_CASE("something like a code counts as none", "[etcd]") {
  const Signer signer(kSecret, false);
  auto read = signed_with(signer, state());
  SECTION("a digit is missing") {
    read.value.pop_back();
  }
  SECTION("a digit is upper-case") {
    read.value.back() = 'A';
  }
  SECTION("a newline follows") {
    read.value += '\n';
  }
  SECTION("there is nothing but the mark") {
    read.value = " hmac-sha256:";
  }
  CHECK(signer.check(read).verdict == Verdict::no_code);
}

TEST_CASE("without a secret nothing is signed and no code is accepted", "[etcd]") {
  for (const Signer& signer : {Signer(), Signer("", false), Signer("", true)}) {
    CHECK_FALSE(signer.has_secret());
    CHECK(signer.sign(state()) == state().value);
    CHECK(signer.check(state()).verdict == Verdict::accepted);
    const auto read = signed_with(Signer(kSecret, false), state());
    CHECK(signer.check(read).verdict == Verdict::no_secret);
  }
}

TEST_CASE("a rejected value is one line with its key and a remedy", "[etcd]") {
  struct Case {
    Verdict verdict;
    const char* remedy;
  };
  const auto [verdict, remedy] = GENERATE(values<Case>({
      {Verdict::no_code, "--rdzv-conf accept_unsigned_state=true"},
      {Verdict::wrong_code, "give all nodes the same secret"},
      {Verdict::no_secret, "--rdzv-token-file FILE"},
  }));
  const auto line = rejection_text("/mgpu-run/alice/j/state", verdict);
  CHECK_THAT(line, Contains("the etcd key /mgpu-run/alice/j/state "));
  CHECK_THAT(line, Contains("etcdctl del /mgpu-run/alice/j/state"));
  CHECK_THAT(line, Contains(remedy));
  CHECK(line.find('\n') == std::string::npos);
  CHECK(rejection_text("/k", Verdict::accepted).empty());
}

TEST_CASE("a key for one purpose differs from that for another and from the secret", "[auth]") {
  using namespace mgpu::rendezvous;
  const auto key = auth::derived_key("secret", "a purpose");
  CHECK(key == auth::derived_key("secret", "a purpose"));
  CHECK(key != auth::derived_key("secret", "another purpose"));
  CHECK(key != auth::derived_key("other secret", "a purpose"));
}

TEST_CASE("a password that goes to etcd over http is worth a warning", "[etcd]") {
  const auto warning = [](const char* endpoints, const char* user) {
    return plain_password_warning(
        {.endpoints = parse_endpoints(endpoints), .user = user, .password = "secret word"});
  };
  const auto line = warning("http://a:1,https://b:2,c:3", "alice");
  CHECK_THAT(line, Contains("the password of the etcd user alice is sent unencrypted to "
                            "http://a:1, http://c:3"));
  CHECK_THAT(line, Contains("use https://"));
  CHECK(line.find("secret word") == std::string::npos);
  CHECK(warning("https://a:1", "alice").empty());
  CHECK(warning("http://a:1", "").empty());
}
