#include "rendezvous/authenticated_channel.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "rendezvous/auth.hpp"
#include "rendezvous/base/spelling.hpp"

namespace mgpu::rendezvous {
namespace {

constexpr std::size_t kHandshakeFrameLimit = 16 << 10;  // a sealed secret is about 1 KiB
constexpr std::size_t kOpenFrameLimit = 4 << 20;
constexpr std::size_t kNonceBytes = 32;
constexpr char kHeartbeatMark = 'B';

auth::Digest code_of(std::string_view key, std::uint64_t number, std::string_view body) {
  const std::string_view count(reinterpret_cast<const char*>(&number), sizeof number);
  return auth::hmac(key, {count, body});
}

std::string nonce_from(const std::string& hex) {
  std::string nonce = auth::from_hex(hex);
  if (nonce.size() != kNonceBytes) throw ProtocolError("a handshake message with an invalid nonce");
  return nonce;
}

}  // namespace

void AuthenticatedChannel::receive(std::string_view bytes, std::vector<Received>& received) {
  const std::size_t head = kProtocolMagic.size() + 1;
  if (preamble_.size() < head) {
    const auto part = bytes.substr(0, head - preamble_.size());
    preamble_.append(part);
    bytes.remove_prefix(part.size());
    check_preamble();
  }
  frames_.add(bytes);
  std::string_view body;
  while (frames_.next(body)) handle_frame(body, received);
}

void AuthenticatedChannel::check_preamble() {
  const auto magic = std::string_view(preamble_).substr(0, kProtocolMagic.size());
  if (!kProtocolMagic.starts_with(magic))
    throw ProtocolError("it does not speak the mgpu-run protocol");
  if (preamble_.size() <= kProtocolMagic.size()) return;
  frames_.limit(kHandshakeFrameLimit);
  const auto theirs = static_cast<std::uint8_t>(preamble_.back());
  if (theirs != kProtocolVersion)
    throw Mismatch(
        fmt::format("{} speaks version {} of the mgpu-run protocol, but this node version {}; "
                    "run the same mgpu-run on all nodes",
                    peer_name_, theirs, kProtocolVersion));
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
  }
  Message message = decode(body);
  const bool is_handshake = message.index() <= Message(Proof{}).index();
  if (open_ && is_handshake) throw ProtocolError("a second handshake");
  if (open_ || std::holds_alternative<Refusal>(message))
    received.emplace_back(std::move(message));
  else
    handle_handshake(std::move(message));
}

void AuthenticatedChannel::send_plain(const Message& message) {
  put_frame(output_, encode(message));
}

void AuthenticatedChannel::send(const Message& message) {
  std::string body = encode(message);
  const auto code = code_of(key_out_, frames_out_++, body);
  body.append(code.data(), auth::kCodeBytes);
  put_frame(output_, body);
}

void AuthenticatedChannel::send(const Heartbeat& heartbeat) {
  std::string body = kHeartbeatMark + encode(heartbeat, key_out_);
  const auto code = code_of(key_out_, frames_out_++, body);
  body.append(code.data(), auth::kCodeBytes);
  put_frame(output_, body);
}

void AuthenticatedChannel::refuse(const Refusal& refusal) {
  open_ ? send(refusal) : send_plain(refusal);
}

void AuthenticatedChannel::open(std::string_view secret, std::string_view agent_nonce,
                                std::string_view leader_nonce, bool agent) {
  const auto of_agent = auth::hmac(secret, {"from the agent", agent_nonce, leader_nonce});
  const auto of_leader = auth::hmac(secret, {"from the leader", agent_nonce, leader_nonce});
  key_out_ = auth::view(agent ? of_agent : of_leader);
  key_in_ = auth::view(agent ? of_leader : of_agent);
  open_ = true;
  frames_.limit(kOpenFrameLimit);
}

std::string AuthenticatedChannel::proof(std::string_view secret, std::string_view side,
                                        std::string_view agent_nonce, std::string_view leader_nonce,
                                        std::string_view job) {
  return auth::to_hex(auth::view(auth::hmac(secret, {side, agent_nonce, leader_nonce, job})));
}

AgentChannel::AgentChannel(Credentials credentials, std::string job, std::string purpose,
                           std::string leader_name)
    : AuthenticatedChannel(leader_name),
      credentials_(std::move(credentials)),
      job_(std::move(job)),
      purpose_(std::move(purpose)),
      leader_name_(std::move(leader_name)),
      nonce_(auth::random_bytes(kNonceBytes)) {
  send_plain(Hello{.job = job_,
                   .nonce = auth::to_hex(nonce_),
                   .purpose = purpose_,
                   .sealed = static_cast<bool>(credentials_.unseal)});
}

void AgentChannel::handle_handshake(Message&& message) {
  const auto* challenge = std::get_if<Challenge>(&message);
  if (!challenge || proven_) throw ProtocolError("a handshake message out of order");
  const std::string leader_nonce = nonce_from(challenge->nonce);
  std::string secret = credentials_.secret;
  if (credentials_.unseal) {
    if (challenge->sealed.empty())
      throw Mismatch(
          "the leader uses another authentication method (a token or --insecure); use the "
          "same one on all nodes");
    secret = credentials_.unseal(challenge->sealed);
  }
  if (!auth::equal(challenge->proof, proof(secret, "leader", nonce_, leader_nonce, job_))) {
    refuse({.status = 2, .why = "the leader's token differs from the agent's"});
    throw Mismatch(
        fmt::format("the token of {} differs from this node's; give all nodes the same "
                    "--rdzv-token-file or MGPU_RDZV_TOKEN",
                    leader_name_));
  }
  proven_ = true;
  send_plain(Proof{proof(secret, "agent", nonce_, leader_nonce, job_)});
  open(secret, nonce_, leader_nonce, true);
}

LeaderChannel::LeaderChannel(const Credentials& credentials, const std::string& job)
    : AuthenticatedChannel("it"), credentials_(credentials), job_(job) {}

void LeaderChannel::handle_handshake(Message&& message) {
  if (auto* hello = std::get_if<Hello>(&message); hello && !nonce_) {
    hello_ = std::move(*hello);
    const bool any_job = hello_.purpose == "status" && hello_.job.empty();
    if (hello_.job != job_ && !any_job) {
      refuse({.status = 2,
              .why = fmt::format("this is job {}, not {}; use the same --rdzv-id on all nodes, "
                                 "or another port for each job",
                                 shown(job_), shown(hello_.job))});
      throw ProtocolError(
          fmt::format("it requested job {}, but this is job {}", shown(hello_.job), shown(job_)));
    }
    const std::string agent_nonce = nonce_from(hello_.nonce);
    nonce_ = auth::random_bytes(kNonceBytes);
    send_plain(Challenge{
        .nonce = auth::to_hex(*nonce_),
        .proof = proof(credentials_.secret, "leader", agent_nonce, *nonce_, hello_.job),
        .sealed =
            hello_.sealed && credentials_.seal ? credentials_.seal(credentials_.secret) : ""});
    return;
  }
  const auto* claim = std::get_if<Proof>(&message);
  if (!claim || !nonce_) throw ProtocolError("a handshake message out of order");
  const std::string agent_nonce = nonce_from(hello_.nonce);
  if (!auth::equal(claim->proof,
                   proof(credentials_.secret, "agent", agent_nonce, *nonce_, hello_.job))) {
    refuse({.status = 2,
            .why =
                "the token differs from this job's; give all nodes the same --rdzv-token-file or "
                "MGPU_RDZV_TOKEN"});
    throw ProtocolError("its token differs from this job's");
  }
  open(credentials_.secret, agent_nonce, *nonce_, false);
}

}  // namespace mgpu::rendezvous
