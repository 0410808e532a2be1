#include "rendezvous/authenticated_channel.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "rendezvous/auth.hpp"
#include "rendezvous/base/exit_status.hpp"
#include "rendezvous/base/spelling.hpp"

namespace mgpu::rendezvous {
namespace {

constexpr std::size_t kHandshakeFrameLimit = 16 << 10;  // a sealed secret is about 1 KiB
constexpr std::size_t kOpenFrameLimit = 4 << 20;
constexpr std::size_t kNonceBytes = 32;
constexpr std::size_t kShownReason = 400;  // of a refusal without proof
constexpr char kHeartbeatMark = 'B';       // a message is JSON and starts with '{'
constexpr char kStoreMark = 'S';

auth::Digest code_of(std::string_view key, std::uint64_t number, std::string_view body) {
  const std::string_view count(reinterpret_cast<const char*>(&number), sizeof number);
  return auth::hmac(key, {count, body});
}

std::string nonce_from(const std::string& hex) {
  std::string nonce = auth::from_hex(hex);
  if (nonce.size() != kNonceBytes) throw ProtocolError("a handshake message with an invalid nonce");
  return nonce;
}

// What each side seals for the other.
std::string sealed_nonces(std::string_view side, std::string_view agent_nonce,
                          std::string_view leader_nonce) {
  return fmt::format("mgpu-run {}:{}{}", side, agent_nonce, leader_nonce);
}

}  // namespace

void AuthenticatedChannel::receive(std::string_view bytes, std::vector<Received>& received) {
  receiving_ = true;
  const auto done = [](bool* flag) { *flag = false; };
  const std::unique_ptr<bool, decltype(done)> flag(&receiving_, done);
  const std::size_t head = kProtocolMagic.size() + 1;
  if (preamble_.size() < head) {
    const auto part = bytes.substr(0, head - preamble_.size());
    preamble_.append(part);
    bytes.remove_prefix(part.size());
    check_preamble();
  }
  frames_.add(bytes);
  if (preamble_.size() < head) return;
  std::string_view body;
  do {
    while (continuation_) std::exchange(continuation_, nullptr)();
    if (!frames_.next(body)) return;
    handle_frame(body, received);
  } while (true);
}

Sealer::Done AuthenticatedChannel::when_done(std::function<void(std::string)> next) {
  waiting_ = true;
  return [this, next = std::move(next), alive = std::weak_ptr(alive_)](std::string text,
                                                                       std::string problem) {
    if (alive.expired()) return;
    continuation_ = [this, next, text = std::move(text), problem = std::move(problem)] {
      waiting_ = false;
      if (!problem.empty()) throw ProtocolError(problem);
      next(text);
    };
    if (receiving_ || !ready_) return;
    const auto ready = ready_;  // it may destroy this channel
    ready();
  };
}

void AuthenticatedChannel::check_preamble() {
  const auto magic = std::string_view(preamble_).substr(0, kProtocolMagic.size());
  if (!kProtocolMagic.starts_with(magic))
    throw ProtocolError("it does not speak the mgpu-run protocol");
  if (preamble_.size() <= kProtocolMagic.size()) return;
  frames_.limit(kHandshakeFrameLimit);
  check_version(static_cast<std::uint8_t>(preamble_.back()));
}

std::string AuthenticatedChannel::version_problem(std::uint8_t theirs) const {
  return fmt::format(
      "{} speaks version {} of the mgpu-run protocol, but this node version {}; "
      "run the same mgpu-run on all nodes",
      peer_name_, theirs, kProtocolVersion);
}

void AuthenticatedChannel::handle_frame(std::string_view body, std::vector<Received>& received) {
  if (open_) {
    if (body.size() <= auth::kCodeBytes)
      throw ProtocolError("a frame without an authentication code");
    const auto content = body.substr(0, body.size() - auth::kCodeBytes);
    const auto code = code_of(key_in_, frames_in_++, content);
    if (!auth::equal(body.substr(content.size()), {code.data(), auth::kCodeBytes}))
      throw ProtocolError("a frame with a wrong authentication code");
    body = content;
    if (body.front() == kHeartbeatMark) {
      auto heartbeat = decode_heartbeat(body.substr(1), key_in_);
      if (!heartbeat) throw ProtocolError("an invalid heartbeat");
      received.emplace_back(*heartbeat);
      return;
    }
    if (body.front() == kStoreMark) {
      received.emplace_back(StoreRecords{std::string(body.substr(1))});
      return;
    }
  }
  Message message = decode(body);
  const bool is_handshake = message.index() <= Message(Proof{}).index();
  if (open_ && is_handshake) throw ProtocolError("a second handshake");
  if (!open_) {
    if (const auto* refusal = std::get_if<Refusal>(&message)) {
      check_refusal(*refusal);
    } else {
      if (waiting_) throw ProtocolError("a handshake message out of order");
      return handle_handshake(std::move(message), body);
    }
  }
  received.emplace_back(std::move(message));
}

void AuthenticatedChannel::send_plain(const Message& message) {
  put_frame(output_, encode(message));
}

void AuthenticatedChannel::send(const Message& message) {
  send_signed(encode(message));
}

void AuthenticatedChannel::send(const Heartbeat& heartbeat) {
  send_signed(kHeartbeatMark + encode(heartbeat, key_out_));
}

void AuthenticatedChannel::send_store_records(std::string_view records) {
  std::string body;
  body.reserve(1 + records.size() + auth::kCodeBytes);
  body += kStoreMark;
  body += records;
  send_signed(std::move(body));
}

void AuthenticatedChannel::send_signed(std::string body) {
  const auto code = code_of(key_out_, frames_out_++, body);
  body.append(code.data(), auth::kCodeBytes);
  put_frame(output_, body);
}

void AuthenticatedChannel::refuse(const Refusal& refusal) {
  open_ ? send(refusal) : send_plain(refusal);
}

void AuthenticatedChannel::open(std::string_view secret, const Transcript& transcript, bool agent) {
  const auto key = [&](std::string_view direction) {
    return auth::hmac(secret, {direction, transcript.hello, transcript.nonce, transcript.sealed});
  };
  const auto of_agent = key("from the agent"), of_leader = key("from the leader");
  key_out_ = auth::view(agent ? of_agent : of_leader);
  key_in_ = auth::view(agent ? of_leader : of_agent);
  open_ = true;
  frames_.limit(kOpenFrameLimit);
}

std::string AuthenticatedChannel::proof(std::string_view secret, std::string_view side,
                                        const Transcript& transcript) {
  const char version = static_cast<char>(kProtocolVersion);
  return auth::to_hex(auth::view(auth::hmac(
      secret, {{&version, 1}, side, transcript.hello, transcript.nonce, transcript.sealed})));
}

// The hello contains the agent's nonce, so that a refusal counts for one connection only. The
// versions precede it on the connection, where others could have changed them.
std::string AuthenticatedChannel::refusal_proof(std::string_view secret, const Versions& versions,
                                                std::string_view hello, const Refusal& refusal) {
  const char both[] = {static_cast<char>(versions.leader), static_cast<char>(versions.agent)};
  return auth::to_hex(auth::view(auth::hmac(
      secret,
      {"refusal", {both, sizeof both}, hello, std::to_string(refusal.status), refusal.why})));
}

// --- The agent's end

AgentChannel::AgentChannel(Credentials credentials, std::string job, std::string purpose,
                           std::string leader_name)
    : AuthenticatedChannel(std::move(leader_name)),
      credentials_(std::move(credentials)),
      nonce_(auth::random_bytes(kNonceBytes)) {
  const Hello hello{.job = std::move(job),
                    .nonce = auth::to_hex(nonce_),
                    .purpose = std::move(purpose),
                    .sealed = credentials_.sealer != nullptr};
  transcript_.hello = encode(hello);
  send_plain(hello);
}

// Anybody can listen on the leader's port and name any version. A leader of another version that
// has the secret follows up with a refusal that proves it.
void AgentChannel::check_version(std::uint8_t theirs) {
  leader_version_ = theirs;
  if (theirs < kFirstProvenVersion) throw ProtocolError(version_problem(theirs));
}

std::string AgentChannel::version_conflict() const {
  return leader_version_ == kProtocolVersion ? std::string() : version_problem(leader_version_);
}

void AgentChannel::check_refusal(const Refusal& refusal) {
  if (credentials_.sealer || !auth::equal(refusal.proof, refusal_proof(credentials_.secret,
                                                                       {.leader = leader_version_,
                                                                        .agent = kProtocolVersion},
                                                                       transcript_.hello, refusal)))
    throw ProtocolError(
        fmt::format("it rejected this node, without proof that it leads the job: {}",
                    shown(refusal.why, kShownReason)));
  if (leader_version_ != kProtocolVersion) throw Mismatch(version_problem(leader_version_));
}

void AgentChannel::handle_handshake(Message&& message, std::string_view) {
  if (leader_version_ != kProtocolVersion) throw ProtocolError(version_problem(leader_version_));
  const auto* challenge = std::get_if<Challenge>(&message);
  if (!challenge || challenged_) throw ProtocolError("a handshake message out of order");
  challenged_ = true;
  transcript_.nonce = nonce_from(challenge->nonce);
  if (!credentials_.sealer) return handle_challenge(*challenge, credentials_.secret);
  if (challenge->sealed.empty())
    throw Mismatch(
        "the leader uses another authentication method (a token or --insecure); use the "
        "same one on all nodes");
  transcript_.sealed = challenge->sealed;
  credentials_.sealer->unseal(
      challenge->sealed, when_done([this, challenge = *challenge](const std::string& text) {
        const std::string expected = nonces("leader");
        if (!text.starts_with(expected))
          throw ProtocolError("it sent a secret that was sealed for another connection");
        handle_challenge(challenge, text.substr(expected.size()));
      }));
}

std::string AgentChannel::nonces(std::string_view side) const {
  return sealed_nonces(side, nonce_, transcript_.nonce);
}

void AgentChannel::handle_challenge(const Challenge& challenge, const std::string& secret) {
  if (!auth::equal(challenge.proof, proof(secret, "leader", transcript_))) {
    refuse({.status = exit_status::kUsage, .why = "the leader's token differs from the agent's"});
    throw Mismatch(
        fmt::format("the token of {} differs from this node's; give all nodes the same "
                    "--rdzv-token-file or MGPU_RDZV_TOKEN",
                    peer_name()));
  }
  if (!credentials_.sealer) return prove(secret, {});
  credentials_.sealer->seal(nonces("agent"), when_done([this, secret](const std::string& sealed) {
                              prove(secret, sealed);
                            }));
}

void AgentChannel::prove(const std::string& secret, const std::string& sealed) {
  proven_at_ = boot_now();
  send_plain(Proof{.proof = proof(secret, "agent", transcript_), .sealed = sealed});
  open(secret, transcript_, true);
}

// --- The leader's end

LeaderChannel::LeaderChannel(const Credentials& credentials, const std::string& job)
    : AuthenticatedChannel("it"), credentials_(credentials), job_(job) {}

void LeaderChannel::check_version(std::uint8_t theirs) {
  agent_version_ = theirs;
  if (theirs < kFirstProvenVersion) throw Mismatch(version_problem(theirs));
}

std::string LeaderChannel::version_conflict() const {
  return agent_version_ == kProtocolVersion ? std::string() : version_problem(agent_version_);
}

void LeaderChannel::check_refusal(const Refusal&) {}

void LeaderChannel::refuse(const Refusal& refusal) {
  Refusal proven = refusal;
  if (!is_open() && !credentials_.sealer && !transcript_.hello.empty())
    proven.proof =
        refusal_proof(credentials_.secret, {.leader = kProtocolVersion, .agent = agent_version_},
                      transcript_.hello, refusal);
  AuthenticatedChannel::refuse(proven);
}

void LeaderChannel::handle_handshake(Message&& message, std::string_view body) {
  if (auto* hello = std::get_if<Hello>(&message); hello && state_ == State::no_hello) {
    hello_ = std::move(*hello);
    transcript_.hello = body;
    return handle_hello();
  }
  const auto* claim = std::get_if<Proof>(&message);
  if (!claim || state_ != State::challenged)
    throw ProtocolError("a handshake message out of order");
  handle_proof(*claim);
}

void LeaderChannel::handle_hello() {
  if (agent_version_ != kProtocolVersion) {
    const std::string why = version_problem(agent_version_);
    refuse({.status = exit_status::kUsage, .why = why});
    throw ProtocolError(why);
  }
  const bool any_job = hello_.purpose == "status" && hello_.job.empty();
  if (hello_.job != job_ && !any_job) {
    refuse({.status = exit_status::kUsage,
            .why = fmt::format("this is job {}, not {}; use the same --rdzv-id on all nodes, "
                               "or another port for each job",
                               shown(job_), shown(hello_.job))});
    throw ProtocolError(
        fmt::format("it requested job {}, but this is job {}", shown(hello_.job), shown(job_)));
  }
  agent_nonce_ = nonce_from(hello_.nonce);
  transcript_.nonce = auth::random_bytes(kNonceBytes);
  if (!hello_.sealed || !credentials_.sealer) return challenge({});
  credentials_.sealer->seal(
      sealed_nonces("leader", agent_nonce_, transcript_.nonce) + credentials_.secret,
      when_done([this](const std::string& sealed) { challenge(sealed); }));
}

void LeaderChannel::challenge(const std::string& sealed) {
  transcript_.sealed = sealed;
  state_ = State::challenged;
  send_plain(Challenge{.nonce = auth::to_hex(transcript_.nonce),
                       .proof = proof(credentials_.secret, "leader", transcript_),
                       .sealed = sealed});
}

void LeaderChannel::handle_proof(const Proof& claim) {
  if (!auth::equal(claim.proof, proof(credentials_.secret, "agent", transcript_))) {
    refuse({.status = exit_status::kUsage,
            .why =
                "the token differs from this job's; give all nodes the same --rdzv-token-file or "
                "MGPU_RDZV_TOKEN"});
    throw ProtocolError("its token differs from this job's");
  }
  state_ = State::proven;
  if (!credentials_.sealer) return open(credentials_.secret, transcript_, false);
  credentials_.sealer->unseal(
      claim.sealed, when_done([this](const std::string& text) {
        if (text != sealed_nonces("agent", agent_nonce_, transcript_.nonce))
          throw ProtocolError("it sent nonces that were sealed for another connection");
        open(credentials_.secret, transcript_, false);
      }));
}

}  // namespace mgpu::rendezvous
