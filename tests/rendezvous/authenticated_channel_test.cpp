#include "rendezvous/authenticated_channel.hpp"

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "rendezvous/auth.hpp"
#include "tests/rendezvous/connections_support.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu::rendezvous;
using Catch::Matchers::Contains;
using mgpu::tests::kPreamble;
using Received = std::vector<AuthenticatedChannel::Received>;

namespace {

struct Sides {
  Credentials leaders{.secret = "secret"};
  std::string job = "job";
  AgentChannel agent;
  LeaderChannel leader{leaders, job};
  Received agent_received, leader_received;
  std::string to_leader, to_agent;  // all bytes on the wire

  explicit Sides(Credentials agents = {.secret = "secret"}, std::string agents_job = "job",
                 std::string purpose = "agent", Credentials leaders_own = {.secret = "secret"})
      : leaders(std::move(leaders_own)),
        agent(std::move(agents), std::move(agents_job), std::move(purpose), "10.0.0.1:29400") {}

  // Exchanges the output of both sides until there is none.
  void exchange(std::size_t piece = 100'000) {
    while (!agent.output().empty() || !leader.output().empty()) {
      carry(agent, leader, leader_received, to_leader, piece);
      carry(leader, agent, agent_received, to_agent, piece);
    }
  }

  static void carry(AuthenticatedChannel& from, AuthenticatedChannel& to, Received& received,
                    std::string& log, std::size_t piece) {
    const std::string bytes = std::exchange(from.output(), {});
    log += bytes;
    for (std::size_t at = 0; at < bytes.size(); at += piece)
      to.receive(std::string_view(bytes).substr(at, piece), received);
  }
};

std::string text_of(const AuthenticatedChannel::Received& received) {
  return std::get<Notice>(std::get<Message>(received)).text;
}

std::string frame_of(const Message& message) {
  std::string out;
  put_frame(out, encode(message));
  return out;
}

// The message after the preamble in a channel's output.
template <class Kind>
Kind decoded(const std::string& bytes, std::size_t skip = 0) {
  FrameReader frames;
  frames.limit(1 << 20);
  frames.add(std::string_view(bytes).substr(kPreamble.size()));
  std::string_view body;
  for (std::size_t i = 0; i <= skip; ++i) REQUIRE(frames.next(body));
  return std::get<Kind>(decode(body));
}

// The complete frames of a stream, each with its header.
std::vector<std::string> frames_of(std::string_view bytes) {
  std::vector<std::string> frames;
  while (bytes.size() >= kFrameHeaderBytes) {
    const auto low = static_cast<unsigned char>(bytes[0]),
               high = static_cast<unsigned char>(bytes[1]);
    const std::size_t size = kFrameHeaderBytes + low + 256U * high;
    frames.emplace_back(bytes.substr(0, size));
    bytes.remove_prefix(size);
  }
  return frames;
}

}  // namespace

TEST_CASE("two sides with the same secret open a channel, however the bytes are cut", "[channel]") {
  const std::size_t piece = GENERATE(1U, 2U, 7U, 100'000U);
  Sides sides;
  sides.exchange(piece);
  REQUIRE(sides.agent.is_open());
  REQUIRE(sides.leader.is_open());
  CHECK(sides.leader.purpose() == "agent");
  CHECK(sides.agent_received.empty());
  CHECK(sides.leader_received.empty());
  CHECK(sides.agent.key_out() == sides.leader.key_in());
  CHECK(sides.agent.key_in() == sides.leader.key_out());
  CHECK(sides.agent.key_in() != sides.agent.key_out());

  for (int i = 0; i < 3; ++i) {
    sides.agent.send(Notice{"up " + std::to_string(i)});
    sides.leader.send(Notice{"down " + std::to_string(i)});
  }
  sides.agent.send(Heartbeat{.session = 5, .number = 1, .sent_at = 9});
  sides.exchange(piece);
  REQUIRE(sides.leader_received.size() == 4);
  REQUIRE(sides.agent_received.size() == 3);
  CHECK(text_of(sides.leader_received[2]) == "up 2");
  CHECK(text_of(sides.agent_received[2]) == "down 2");
  CHECK(std::get<Heartbeat>(sides.leader_received[3]).sent_at == 9);
}

TEST_CASE("the secret is never sent, and keys differ for each connection", "[channel]") {
  Sides one({.secret = "a long secret"}, "job", "agent", {.secret = "a long secret"});
  Sides two({.secret = "a long secret"}, "job", "agent", {.secret = "a long secret"});
  one.exchange();
  two.exchange();
  CHECK_THAT(one.to_leader + one.to_agent, !Contains("a long secret"));
  CHECK(one.agent.key_out() != two.agent.key_out());
  CHECK(one.to_leader != two.to_leader);
}

TEST_CASE("an agent with a wrong secret is rejected with a message", "[channel]") {
  const Credentials agents{.secret = GENERATE("", "secre", "secret2")};
  Sides sides(agents);
  CHECK_THROWS_AS(sides.exchange(), Mismatch);
  CHECK_FALSE(sides.agent.is_open());
  CHECK_FALSE(sides.leader.is_open());

  SECTION("and the leader learns the reason") {
    Sides::carry(sides.agent, sides.leader, sides.leader_received, sides.to_leader, 1000);
    REQUIRE(sides.leader_received.size() == 1);
    const auto& refusal = std::get<Refusal>(std::get<Message>(sides.leader_received[0]));
    CHECK(refusal.why == "the leader's token differs from the agent's");
    CHECK_FALSE(sides.leader.is_open());
  }
}

TEST_CASE("a leader with a wrong secret is rejected", "[channel]") {
  Sides sides({.secret = "secret"}, "job", "agent", {.secret = ""});
  CHECK_THROWS_WITH(sides.exchange(),
                    Contains("the token of 10.0.0.1:29400 differs from this node's") &&
                        Contains("--rdzv-token-file"));
  CHECK_FALSE(sides.agent.is_open());
}

TEST_CASE("an agent that sends a wrong proof is rejected with a reason", "[channel]") {
  const Credentials credentials{.secret = "secret"};
  const std::string job = "job";
  LeaderChannel leader(credentials, job);
  Received received;
  leader.receive(kPreamble + frame_of(Hello{.job = "job", .nonce = std::string(64, '0')}),
                 received);
  const auto challenge = decoded<Challenge>(leader.output());
  const auto guess = GENERATE_COPY(std::string(), std::string(64, '0'), challenge.proof);
  CHECK_THROWS_AS(leader.receive(frame_of(Proof{guess}), received), ProtocolError);
  CHECK_FALSE(leader.is_open());
  CHECK_THAT(decoded<Refusal>(leader.output(), 1).why,
             Contains("the token differs from this job's"));
}

TEST_CASE("a node of another job is rejected, and both sides get a message", "[channel]") {
  Sides sides({.secret = "secret"}, "another\x1b[31m");
  CHECK_THROWS_WITH(sides.exchange(), "it requested job another?[31m, but this is job job");
  Sides::carry(sides.leader, sides.agent, sides.agent_received, sides.to_agent, 1000);
  REQUIRE(sides.agent_received.size() == 1);
  const auto& refusal = std::get<Refusal>(std::get<Message>(sides.agent_received[0]));
  CHECK(refusal.status == 2);
  CHECK_THAT(refusal.why, Contains("this is job job, not another?[31m") && Contains("--rdzv-id"));
}

TEST_CASE("a status request needs the secret of the job, but not its id", "[channel]") {
  Sides sides({.secret = "secret"}, "", "status");
  sides.exchange();
  CHECK(sides.leader.is_open());
  CHECK(sides.leader.purpose() == "status");

  Sides nameless({.secret = "secret"}, "", "agent");
  CHECK_THROWS_AS(nameless.exchange(), ProtocolError);
  Sides wrong_secret({.secret = "x"}, "", "status");
  CHECK_THROWS_AS(wrong_secret.exchange(), Mismatch);
}

TEST_CASE("an agent of a newer version learns from the leader that the versions differ",
          "[channel]") {
  Sides sides;
  Received received;
  sides.agent.output()[kProtocolMagic.size()] = static_cast<char>(kProtocolVersion + 1);
  CHECK_THROWS_WITH(sides.exchange(), Contains("it speaks version 6") && Contains("version 5"));
  // The agent has not sent that version: somebody in between has changed it.
  try {
    sides.agent.receive(std::exchange(sides.leader.output(), {}), received);
    FAIL("no exception");
  } catch (const Mismatch&) {
    FAIL("a changed version ended the agent");
  } catch (const ProtocolError& error) {
    CHECK_THAT(error.what(), Contains("without proof") && Contains("it speaks version 6"));
  }
}

TEST_CASE("a leader of another version ends the agent only with a proof", "[channel]") {
  Sides sides;
  Received received;
  std::string newer = std::string(kProtocolMagic) + static_cast<char>(kProtocolVersion + 1);
  SECTION("proven") {
    const std::string hello = sides.agent.output().substr(newer.size() + 4);  // after the length
    const char versions[] = {static_cast<char>(kProtocolVersion + 1),
                             static_cast<char>(kProtocolVersion)};
    Refusal refusal{.status = 2, .why = "another version"};
    refusal.proof = auth::to_hex(auth::view(auth::hmac(
        "secret", {"refusal", {versions, sizeof versions}, hello, "2", "another version"})));
    CHECK_THROWS_AS(sides.agent.receive(newer + frame_of(refusal), received), Mismatch);
  }
  SECTION("not proven") {
    try {
      sides.agent.receive(newer + frame_of(Refusal{.status = 2, .why = "another version"}),
                          received);
      FAIL("no exception");
    } catch (const Mismatch&) {
      FAIL("it ended the agent");
    } catch (const ProtocolError& error) {
      CHECK_THAT(error.what(), Contains("without proof") && Contains("another version"));
    }
  }
  SECTION("a leader that cannot prove anything, because it is too old") {
    newer.back() = 1;
    CHECK_THROWS_WITH(
        sides.agent.receive(newer, received),
        Contains("10.0.0.1:29400 speaks version 1") && Contains("this node version 5"));
    CHECK_THROWS_AS(sides.leader.receive(newer, received), Mismatch);
  }
  CHECK(received.empty());
}

TEST_CASE("another protocol is rejected at its first byte that does not match", "[channel]") {
  const auto* other = GENERATE("HTTP/1.1 400 Bad Request", "M", "MG", "MGPX", "SSH-2.0", "\n");
  CAPTURE(other);
  Sides sides;
  Received received;
  if (kProtocolMagic.starts_with(other)) {
    sides.agent.receive(other, received);
    sides.agent.receive("", received);
    other = "?";
  }
  CHECK_THROWS_WITH(sides.agent.receive(other, received),
                    "it does not speak the mgpu-run protocol");
}

TEST_CASE("a recorded connection cannot be replayed to a leader", "[channel]") {
  Sides sides;
  sides.exchange();
  sides.agent.send(Notice{"stop the job"});
  sides.exchange();

  LeaderChannel leader(sides.leaders, sides.job);
  Received received;
  CHECK_THROWS_WITH(leader.receive(sides.to_leader, received), "its token differs from this job's");
  CHECK(received.empty());
  CHECK_FALSE(leader.is_open());

  SECTION("nor to an agent") {
    AgentChannel agent({.secret = "secret"}, "job", "agent", "x");
    CHECK_THROWS_AS(agent.receive(sides.to_agent, received), Mismatch);
    CHECK_FALSE(agent.is_open());
  }
  SECTION("nor can a leader's challenge be returned to it as a proof") {
    LeaderChannel other(sides.leaders, sides.job);
    other.receive(kPreamble + frame_of(Hello{.job = "job", .nonce = std::string(64, 'a')}),
                  received);
    const auto challenge = decoded<Challenge>(other.output());
    CHECK_THROWS_AS(other.receive(frame_of(Proof{challenge.proof}), received), ProtocolError);
  }
}

TEST_CASE("one changed bit in any frame is detected", "[channel]") {
  Sides sides;
  sides.exchange();
  sides.agent.send(Leave{15, "x"});
  sides.agent.send(Heartbeat{.session = 1, .number = 1});
  const auto frames = frames_of(std::exchange(sides.agent.output(), {}));
  REQUIRE(frames.size() == 2);
  const std::size_t which = GENERATE(0U, 1U);
  for (std::size_t bit = 8 * kFrameHeaderBytes; bit < 8 * frames[which].size(); ++bit) {
    // A copy of the leader's end in the same state, because a channel cannot be rewound.
    Sides fresh;
    fresh.exchange();
    fresh.agent.send(Leave{15, "x"});
    fresh.agent.send(Heartbeat{.session = 1, .number = 1});
    auto copies = frames_of(std::exchange(fresh.agent.output(), {}));
    auto& changed = copies[which];
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
    Received received;
    CAPTURE(which, bit);
    if (which == 1) fresh.leader.receive(copies[0], received);
    REQUIRE_THROWS_AS(fresh.leader.receive(changed, received), ProtocolError);
    REQUIRE(received.size() == which);
  }
}

TEST_CASE("a changed bit in the handshake opens no channel", "[channel]") {
  // The frames of the handshake: hello and proof from the agent, challenge from the leader.
  Sides pattern;
  pattern.exchange();
  const std::size_t bits = 8 * std::max(pattern.to_leader.size(), pattern.to_agent.size());
  const std::size_t hello_bytes =
      frames_of(std::string_view(pattern.to_leader).substr(kPreamble.size())).at(0).size();
  for (std::size_t bit = 0; bit < bits; ++bit) {
    for (const bool upwards : {true, false}) {
      Sides sides;
      std::size_t seen = 0;
      const auto flip = [&](std::string& bytes) {
        for (auto& byte : bytes)
          if (seen++ == bit / 8) byte = static_cast<char>(byte ^ (1 << bit % 8));
      };
      bool refused = false;
      try {
        while (!sides.agent.output().empty() || !sides.leader.output().empty()) {
          if (upwards) flip(sides.agent.output());
          Sides::carry(sides.agent, sides.leader, sides.leader_received, sides.to_leader, 100'000);
          if (!upwards) flip(sides.leader.output());
          Sides::carry(sides.leader, sides.agent, sides.agent_received, sides.to_agent, 100'000);
        }
      } catch (const ProtocolError&) {
        refused = true;
      }
      CAPTURE(bit, upwards);
      // An unknown field may change in the frames that carry the proofs. A changed length may make
      // a side wait for more bytes.
      if (!refused && sides.agent.is_open() && sides.leader.is_open()) {
        REQUIRE(sides.agent.key_out() == sides.leader.key_in());
        REQUIRE(sides.agent.key_in() == sides.leader.key_out());
      }
      const std::size_t hello_ends = kPreamble.size() + hello_bytes;
      if (upwards && bit / 8 < hello_ends) REQUIRE_FALSE(sides.agent.is_open());
    }
  }
}

TEST_CASE("missing, swapped, repeated or reflected frames are detected", "[channel]") {
  Sides sides;
  sides.exchange();
  for (const char* text : {"one", "two", "three"}) sides.agent.send(Notice{text});
  const auto frames = frames_of(std::exchange(sides.agent.output(), {}));
  REQUIRE(frames.size() == 3);
  Received received;
  SECTION("missing") {
    CHECK_THROWS_AS(sides.leader.receive(frames[1], received), ProtocolError);
    CHECK(received.empty());
  }
  SECTION("swapped") {
    sides.leader.receive(frames[0], received);
    CHECK_THROWS_AS(sides.leader.receive(frames[2], received), ProtocolError);
  }
  SECTION("repeated") {
    sides.leader.receive(frames[0], received);
    CHECK_THROWS_AS(sides.leader.receive(frames[0], received), ProtocolError);
    CHECK(received.size() == 1);
  }
  SECTION("reflected to the sender") {
    CHECK_THROWS_AS(sides.agent.receive(frames[0], received), ProtocolError);
  }
  SECTION("without an authentication code") {
    CHECK_THROWS_WITH(sides.leader.receive(std::string("\2\0\0\0{}", 6), received),
                      "a frame without an authentication code");
  }
}

TEST_CASE("a handshake happens once, in a fixed order", "[channel]") {
  Sides sides;
  Received received;
  const auto hello = frame_of(Hello{.job = "job", .nonce = std::string(64, '0')});
  SECTION("a second hello") {
    CHECK_THROWS_WITH(sides.leader.receive(kPreamble + hello + hello, received),
                      "a handshake message out of order");
  }
  SECTION("a proof before the hello") {
    CHECK_THROWS_WITH(sides.leader.receive(kPreamble + frame_of(Proof{""}), received),
                      "a handshake message out of order");
  }
  SECTION("another message before its end") {
    CHECK_THROWS_AS(sides.leader.receive(kPreamble + hello + frame_of(Join{}), received),
                    ProtocolError);
    CHECK(received.empty());
  }
  SECTION("an invalid nonce") {
    const std::string nonce =
        GENERATE(std::string(), std::string(62, '0'), std::string(66, '0'), std::string(64, 'x'));
    CHECK_THROWS_WITH(
        sides.leader.receive(kPreamble + frame_of(Hello{.job = "job", .nonce = nonce}), received),
        "a handshake message with an invalid nonce");
  }
  SECTION("a hello to the agent") {
    CHECK_THROWS_AS(sides.agent.receive(kPreamble + hello, received), ProtocolError);
  }
  SECTION("a handshake message in an open channel") {
    sides.exchange();
    sides.agent.send(Hello{.job = "job", .nonce = std::string(64, '0')});
    CHECK_THROWS_WITH(sides.exchange(), "a second handshake");
  }
  SECTION("a handshake message of more than a few KiB") {
    CHECK_THROWS_AS(sides.leader.receive(kPreamble + std::string("\1\x40\0\0", 4), received),
                    ProtocolError);
  }
}

TEST_CASE("a refusal without a proof of the secret does not count", "[channel]") {
  Sides sides;
  Received received;
  sides.leader.receive(sides.agent.output(), received);
  sides.leader.output().clear();
  sides.leader.refuse({.status = 3, .why = "full"});
  const auto proven = decoded<Refusal>(kPreamble + sides.leader.output());
  CHECK_FALSE(proven.proof.empty());

  Refusal refusal{.status = 0, .why = "done\x1b[31m \xc2\x9b"};
  AgentChannel other({.secret = "secret"}, "job", "agent", "10.0.0.1:29400");
  AgentChannel* agent = &sides.agent;
  SECTION("none at all") {}
  SECTION("that of another refusal") {
    refusal.proof = proven.proof;
  }
  SECTION("with another status") {
    refusal = {0, "full", proven.proof};
  }
  SECTION("that of another connection") {
    refusal = proven;
    agent = &other;
  }
  CHECK_THROWS_WITH(agent->receive(kPreamble + frame_of(refusal), received),
                    Contains("without proof that it leads the job") && !Contains("\x1b"));
  CHECK(received.empty());
}

TEST_CASE("a refusal is received at any time after the agent's hello", "[channel]") {
  Sides sides;
  SECTION("before the channel is open") {
    Received received;
    sides.leader.receive(sides.agent.output(), received);
    sides.leader.output() = kPreamble;
    sides.leader.refuse({.status = 3, .why = "full"});
    Sides::carry(sides.leader, sides.agent, sides.agent_received, sides.to_agent, 1);
  }
  SECTION("and afterwards") {
    sides.exchange();
    sides.leader.refuse({.status = 3, .why = "full"});
    Sides::carry(sides.leader, sides.agent, sides.agent_received, sides.to_agent, 1);
  }
  REQUIRE(sides.agent_received.size() == 1);
  const auto& refusal = std::get<Refusal>(std::get<Message>(sides.agent_received[0]));
  CHECK(refusal.status == 3);
  CHECK(refusal.why == "full");
}

namespace {

// Seals by putting the user's name in front. Answers at once, or when the test says so.
class TestSealer : public Sealer {
 public:
  explicit TestSealer(std::string user = "me") : user_(std::move(user)) {}
  void deliver_through(Post) override {}
  void seal(std::string text, Done done) override {
    ++calls;
    answer(
        [done = std::move(done), sealed = user_ + ">" + auth::to_hex(text)] { done(sealed, {}); });
  }
  void unseal(std::string sealed, Done done) override {
    ++calls;
    const std::string head = user_ + ">";
    const bool ours = sealed.starts_with(head);
    answer([done = std::move(done), text = ours ? auth::from_hex(sealed.substr(head.size())) : "",
            problem = std::string(ours ? "" : "cannot open it")] { done(text, problem); });
  }

  bool waits = false;
  int calls = 0;
  std::vector<std::function<void()>> waiting;

 private:
  void answer(std::function<void()> answer) {
    if (waits)
      waiting.push_back(std::move(answer));
    else
      answer();
  }
  std::string user_;
};

Credentials sealed_by(std::shared_ptr<TestSealer> sealer, std::string secret = {}) {
  return {.secret = std::move(secret), .sealer = std::move(sealer)};
}

}  // namespace

TEST_CASE("with a sealer only programs of the same user open a channel", "[channel]") {
  const auto ours = std::make_shared<TestSealer>();
  SECTION("the same user") {
    Sides sides(sealed_by(ours), "job", "agent", sealed_by(ours, "made up"));
    sides.exchange();
    CHECK(sides.agent.is_open());
    CHECK(sides.leader.is_open());
    CHECK(ours->calls == 4);
  }
  SECTION("an agent of another user cannot open the leader's secret") {
    Sides sides(sealed_by(std::make_shared<TestSealer>("other")), "job", "agent",
                sealed_by(ours, "made up"));
    CHECK_THROWS_WITH(sides.exchange(), "cannot open it");
    CHECK_FALSE(sides.leader.is_open());
  }
  SECTION("an agent of another user does not get in, even if it has read the secret") {
    Sides sides({.secret = "made up"}, "job", "agent", sealed_by(ours, "made up"));
    CHECK_THROWS_AS(sides.exchange(), ProtocolError);
    CHECK_FALSE(sides.leader.is_open());
  }
  SECTION("a leader that cannot seal") {
    CHECK_THROWS_WITH(Sides(sealed_by(ours)).exchange(), Contains("another authentication method"));
  }
  SECTION("the secret is not sent to agents that did not request it") {
    Sides sides({.secret = "made up"}, "job", "agent", sealed_by(ours, "made up"));
    CHECK_THROWS_AS(sides.exchange(), ProtocolError);
    CHECK_THAT(sides.to_agent, !Contains(auth::to_hex("made up")) && !Contains("made up"));
  }
}

TEST_CASE("a sealed secret or sealed nonces of another connection are useless", "[channel]") {
  const auto ours = std::make_shared<TestSealer>();
  Sides one(sealed_by(ours), "job", "agent", sealed_by(ours, "made up"));
  one.exchange();
  Received received;
  SECTION("to an agent") {
    const auto challenge = decoded<Challenge>(one.to_agent);
    AgentChannel agent(sealed_by(ours), "job", "agent", "x");
    CHECK_THROWS_WITH(agent.receive(kPreamble + frame_of(challenge), received),
                      "it sent a secret that was sealed for another connection");
  }
  SECTION("to the leader") {
    Sides two(sealed_by(ours), "job", "agent", sealed_by(ours, "made up"));
    Sides::carry(two.agent, two.leader, received, two.to_leader, 1000);
    Sides::carry(two.leader, two.agent, received, two.to_agent, 1000);
    auto proof = decoded<Proof>(kPreamble + two.agent.output());
    proof.sealed = decoded<Proof>(one.to_leader, 1).sealed;
    CHECK_THROWS_WITH(two.leader.receive(frame_of(proof), received),
                      "it sent nonces that were sealed for another connection");
    CHECK_FALSE(two.leader.is_open());
  }
}

TEST_CASE("while a sealer works the handshake waits, and goes on afterwards", "[channel]") {
  const auto slow = std::make_shared<TestSealer>();
  slow->waits = true;
  Sides sides(sealed_by(slow), "job", "agent", sealed_by(slow, "made up"));
  int ready = 0;
  const auto proceed = [&](AuthenticatedChannel& channel, Received& received) {
    return [&] {
      ++ready;
      channel.receive({}, received);
    };
  };
  sides.agent.on_ready(proceed(sides.agent, sides.agent_received));
  sides.leader.on_ready(proceed(sides.leader, sides.leader_received));
  SECTION("all four calls") {
    for (int call = 1; call <= 4; ++call) {
      sides.exchange();
      CHECK_FALSE(sides.leader.is_open());
      REQUIRE(slow->waiting.size() == 1);
      std::exchange(slow->waiting, {})[0]();
      CHECK(ready == call);
    }
    CHECK(sides.leader.is_open());
    CHECK(sides.agent.is_open());
    sides.leader.send(Notice{"hello"});
    sides.exchange();
    CHECK(text_of(sides.agent_received.at(0)) == "hello");
  }
  SECTION("bytes that arrive meanwhile are out of order") {
    sides.exchange();
    CHECK_THROWS_WITH(sides.leader.receive(frame_of(Proof{}), sides.leader_received),
                      "a handshake message out of order");
  }
  SECTION("a result for a connection that is gone is dropped") {
    {
      LeaderChannel gone(sides.leaders, sides.job);
      gone.receive(
          kPreamble +
              frame_of(Hello{
                  .job = "job", .nonce = std::string(64, '0'), .purpose = "agent", .sealed = true}),
          sides.leader_received);
    }
    REQUIRE(slow->waiting.size() == 1);
    slow->waiting[0]();
    CHECK(ready == 0);
  }
}
